// Package transfer copies a directory tree into another one in batches, between which everybody else gets the pools
// that the two are in. How far it has come can be stored, and gone on from by another process.
package transfer

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
)

// ErrTooLarge is a tree with more data than its copy may have, or that uses more of the disk.
var ErrTooLarge = errors.New("there is more data than the copy has room for")

const (
	// BatchSize is how much is in memory, and how much is done while a pool is open, in bytes.
	BatchSize = 512 << 10
	// saveInterval is how much time of work a crash of the driver costs at most.
	saveInterval = 5 * time.Minute
	// longest is the largest place that is saved, in bytes: a record has no room for all names of a very deep tree.
	longest = 256 << 10
	// most is more than the largest place of any tree, in bytes: 1,024 names, with some 90 bytes beside each. What a
	// record has no room for is not saved, and Place.Usage would be lost with it.
	most = 512 << 10
	// overhead is what a copy of any size may use of its disk, in bytes, for directories and inodes: those of some two
	// million files with nothing in them, which no quota of bytes counts.
	overhead = 1 << 30
)

// Place is how far a transfer has come.
type Place struct {
	Links string `json:"links"` // the name of a directory that the copy has while it is made
	Next  []byte `json:"next,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Files int64  `json:"files,omitempty"`
	// Skipped are mount points and subvolumes of btrfs, Changed what changed meanwhile, or was gone.
	Skipped int64 `json:"skipped,omitempty"`
	Changed int64 `json:"changed,omitempty"`
	// Usage is what the copy uses of its disk, in bytes; older drivers did not count it.
	Usage int64 `json:"usage,omitempty"`
}

// takes reports whether a batch can be what is behind a place: numbers of a hostile node are less than nothing, or make
// a sum that is, and where it says to go on no record has room for.
func (p Place) takes(b copytree.Batch) bool {
	if len(b.Next) > most {
		return false
	}
	for _, n := range [][2]int64{
		{p.Bytes, b.Bytes}, {p.Files, b.Files}, {p.Skipped, b.Skipped}, {p.Changed, b.Changed},
	} {
		if n[1] < 0 || n[1] > math.MaxInt64-n[0] {
			return false
		}
	}
	return true
}

// behind is the place behind a batch.
func (p Place) behind(b copytree.Batch) Place {
	return Place{
		Links: p.Links, Next: b.Next, Bytes: p.Bytes + b.Bytes, Files: p.Files + b.Files,
		Skipped: p.Skipped + b.Skipped, Changed: p.Changed + b.Changed, Usage: p.Usage,
	}
}

// Begin is the place of a transfer that has not begun. Nothing in the tree has the random name in it.
func Begin() Place { return Place{Links: ".hpp-links-" + rand.Text()} }

// Encode gives a place to be stored.
func (p Place) Encode() ([]byte, error) { return json.Marshal(p) }

// Decode reads one.
func Decode(stored []byte) (p Place, err error) {
	if err = json.Unmarshal(stored, &p); err != nil {
		return p, fmt.Errorf("%w: %w", copytree.ErrPosition, err)
	}
	return p, nil
}

// Job is a transfer.
type Job struct {
	// Next reads the batch behind a position. With clone it says only where the data is, for the filesystem to share.
	Next func(ctx context.Context, from []byte, clone bool) (copytree.Batch, error)
	// Write gives the directories for one batch; the first is nil where it is in another pool.
	Write func(ctx context.Context, work func(from, to *os.File) error) error
	// Save makes what was written durable, and then the place.
	Save func(ctx context.Context, p Place) error
	// Most is how much data the copy may have, in bytes. Of its disk it may use twice that and overhead, in case no
	// quota limits it: files of 3 KiB on average use no more, with their inodes and names.
	Most int64
	// Clone has the filesystem share the data, if it can.
	Clone bool

	progress atomic.Pointer[Place]
}

// Progress is how far the job has come; it may be called at any time.
func (j *Job) Progress() Place {
	if p := j.progress.Load(); p != nil {
		return *p
	}
	return Place{}
}

func (j *Job) noteProgress(p Place) { j.progress.Store(&p) }

// Run copies what is behind a place. After an error it may be run again, from the place that was saved last.
func (j *Job) Run(ctx context.Context, at Place) error {
	sink := &copytree.Sink{Links: at.Links}
	sink.Usage.Bytes = at.Usage
	saved, resumable := time.Now(), len(at.Next) > 0
	for last := false; !last; {
		b, err := j.batch(ctx, sink, at)
		at.Usage = sink.Usage.Bytes
		switch {
		case errors.Is(err, copytree.ErrNoClone) && j.Clone:
			j.Clone = false
			continue
		case errors.Is(err, copytree.ErrLeased):
			if err = pause(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			j.noteProgress(at)
			return err
		}
		at, last = at.behind(b), b.Last
		j.noteProgress(at)
		if time.Since(saved) < saveInterval || len(at.Next) > longest {
			continue
		}
		if err := j.Save(ctx, at); err != nil {
			return err
		}
		saved, resumable = time.Now(), true
	}
	if resumable { // from an earlier place other names of files would become files, once the links are gone
		if err := j.Save(ctx, at); err != nil {
			return err
		}
	}
	return j.finish(ctx, sink, at)
}

func (j *Job) finish(ctx context.Context, sink *copytree.Sink, at Place) error {
	for done := false; !done; {
		err := j.Write(ctx, func(_, to *os.File) (err error) {
			done, err = sink.Finish(ctx, to, at.Next)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pause waits a moment.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Second):
		return nil
	}
}

func (j *Job) batch(ctx context.Context, sink *copytree.Sink, at Place) (copytree.Batch, error) {
	err := context.Cause(ctx)
	if err == nil {
		err = j.checkSize(at.Bytes, sink.Usage.Bytes) // a batch that was interrupted may be why not
	}
	if err != nil {
		return copytree.Batch{}, err
	}
	b, err := j.Next(ctx, at.Next, j.Clone)
	if err == nil && !at.takes(b) {
		err = copytree.ErrBatch
	}
	if err != nil {
		return b, err
	}
	err = j.Write(ctx, func(from, to *os.File) error {
		sink.Source = from
		return sink.Apply(ctx, to, b)
	})
	b.Bytes -= sink.Spared
	switch {
	case errors.Is(err, syscall.EDQUOT):
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err == nil:
		err = j.checkSize(at.Bytes+b.Bytes, sink.Usage.Bytes)
	}
	return b, err
}

// checkSize refuses more data than the copy may have, in bytes, or that it uses more of its disk.
func (j *Job) checkSize(data, usage int64) error {
	switch {
	case data > j.Most:
		return fmt.Errorf("%w: more than %s", ErrTooLarge, bytesize.Format(j.Most))
	case usage-j.Most > j.Most+overhead: // their sum may be more than an int64
		return fmt.Errorf("%w: its files and directories use %s of the disk", ErrTooLarge, bytesize.Format(usage))
	}
	return nil
}
