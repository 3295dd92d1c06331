package store

import (
	"context"
	"errors"
	"reflect"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// ErrNoSnapshots is for a pool whose filesystem makes none.
var ErrNoSnapshots = errors.New("the pool's filesystem makes no snapshots")

// Kind says what a record is of. What is found as one kind is not there as the other.
type Kind string

// Kinds.
const (
	OfVolume   Kind = ""
	OfSnapshot Kind = "snapshot"
)

// Source is where the data of a copy comes from.
type Source struct {
	Kind     Kind   `json:"kind,omitempty"`
	ID       string `json:"id"`
	ByFile   bool   `json:"byFile,omitempty"`   // it is copied file by file, in staging until it is whole
	From     []byte `json:"from,omitempty"`     // how far the copy is on the disk
	Complete bool   `json:"complete,omitempty"` // it is whole
	Skipped  int    `json:"skipped,omitempty"`  // subvolumes that are empty directories in the copy
	// Move is set where the source is the volume itself on another node, from which it is moved: which move it is.
	Move string `json:"move,omitempty"`
}

// Constant reports whether a source surely is what it was when its copy began.
func (s *Source) Constant() bool { return s.Kind == OfSnapshot || s.Move != "" }

// String says what it is, "nothing" for no source.
func (s *Source) String() string {
	switch {
	case s == nil:
		return "nothing"
	case s.Kind == OfSnapshot:
		return "snapshot " + s.ID
	default:
		return "volume " + s.ID
	}
}

// Filling reports whether a record is of a copy that is made file by file and is not whole.
func (r Record) Filling() bool { return r.Source != nil && r.Source.ByFile && !r.Source.Complete }

// version is the oldest that has all that the record says.
func (r Record) version() int {
	switch {
	case r.Leaving != nil || r.Keep != 0 || r.Tagging():
		return Version
	case r.Kind != OfVolume || r.Source != nil || r.Held != 0 || len(r.Pins) > 0:
		return versionWithoutMoves
	default:
		return versionWithoutCopies
	}
}

// Copy makes a snapshot, or a volume, of what Source names in the same pool, as Create does. complete is called once
// the copy is made and before its record is there, to put into it what is known only then. The record of a volume names
// a limit, so it is there before: as r is, which must not say less than what complete makes of it.
func (p Pool) Copy(ctx context.Context, r Record, complete func(*Record) error) (Record, error) {
	var prepared Record
	made, err := p.create(ctx, r, func(r Record) (_ Record, err error) {
		if r, prepared, err = p.cut(r); err == nil {
			err = complete(&r)
		}
		if err == nil && r.QuotaID == 0 {
			prepared, err = r, Prepare(p.Disk, r)
		}
		return r, err
	})
	if err != nil || reflect.DeepEqual(made, prepared) {
		return made, err
	}
	if err := Replace(p.Disk, made); err != nil {
		p.Log.Warn("a copy's record says that it keeps more than it does", logging.KeyID, r.ID, logging.KeyError, err)
		return prepared, nil
	}
	return made, nil
}

// cut makes the copy in staging, and gives its record besides as it was prepared.
func (p Pool) cut(r Record) (made, prepared Record, err error) {
	snapshots := p.Backend.Snapshots(p.Disk)
	if snapshots == nil {
		return r, r, ErrNoSnapshots
	}
	r.Backend, prepared = p.Backend.Name, r
	source := *r.Source
	r.QuotaID, source.Skipped, err = snapshots.Copy(source.ID, Staged(r.ID), r.Limit(), func(id quota.ID) error {
		if id == 0 {
			return nil
		}
		prepared = r
		prepared.QuotaID = id
		return Prepare(p.Disk, prepared)
	})
	r.Source = &source
	return r, prepared, err
}
