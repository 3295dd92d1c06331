package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Errors of records.
var (
	ErrNotFound  = errors.New("volume not found")
	ErrBroken    = errors.New("volume's record cannot be used")
	ErrUnwritten = errors.New("volume's record could not be read again")
	// ErrNewer is why a record is ErrBroken that is whole, and that only a newer driver understands.
	ErrNewer = errors.New("a newer driver wrote it")
)

// Disposal says what deleting a volume does with its data.
type Disposal string

// The values of the StorageClass parameter onDelete.
const (
	Trash  Disposal = nodeapi.OnDeleteTrash
	Purge  Disposal = nodeapi.OnDeletePurge
	Retain Disposal = nodeapi.OnDeleteRetain
)

// InodesFrom says who chose a volume's inode limit.
type InodesFrom string

// Values of InodesFrom. Only what the class says is compared when a create is repeated.
const (
	FromClass InodesFrom = ""        // or the attributes of an inline volume
	Derived   InodesFrom = "derived" // from the size, with which it grows
	FromAdmin InodesFrom = "admin"   // `driver volume enforce --inodes`
)

// Version is the newest record format that this driver reads. A record is written as the oldest that has all that it
// says, so that older drivers read what they can.
const Version = 4

const versionWithoutCopies, versionWithoutMoves = 2, 3

// Record is the file that says what a volume is (csi/.hpp/volumes/<id>.json), one a volume. It is written so that a
// crash leaves the old state or the new one.
type Record struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Kind    Kind   `json:"kind,omitempty"`
	Pool    string `json:"pool"`
	Bytes   int64  `json:"bytes"`
	// Inodes limits files and directories, the volume's root included; 0 is no limit.
	Inodes     int64      `json:"inodes,omitempty"`
	InodesFrom InodesFrom `json:"inodesFrom,omitempty"`
	// Backend made the volume, and QuotaID is what its files count to; 0 where nothing is enforced.
	Backend string   `json:"backend"`
	QuotaID quota.ID `json:"quotaID,omitempty"`
	// Mode holds permission bits as chmod(1) writes them, 07777 at most.
	Mode       uint32            `json:"mode"`
	UID        int               `json:"uid"`
	GID        int               `json:"gid"`
	OnDelete   Disposal          `json:"onDelete"`
	Claim      nodeapi.Claim     `json:"claim,omitzero"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Ephemeral marks an inline volume, the only kind that unpublishing deletes.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Node is the one in whose directories of a shared pool the volume was made; "" in other pools.
	Node string `json:"node,omitempty"`
	// Adopted marks a directory that another driver made; nothing is enforced on it.
	Adopted bool `json:"adopted,omitempty"`
	// TakenFrom is the path on the node of a directory that became this volume, and can go back there.
	TakenFrom string `json:"takenFrom,omitempty"`
	// Enforcing says that not all files count to QuotaID yet, Returning that they are being taken out of it.
	Enforcing bool `json:"enforcing,omitempty"`
	Returning bool `json:"returning,omitempty"`
	// Source is nil but in a copy.
	Source *Source `json:"source,omitempty"`
	// Held is how many bytes may count to QuotaID beside those of the volume: what copies of it keep, and what a copy
	// may take while it is made. Of a snapshot it is all that may.
	Held int64 `json:"held,omitempty"`
	// Pins are what this copy keeps charged to others.
	Pins []quota.Pin `json:"pins,omitempty"`
	// Leaving is the move of the volume to another node, nil for none: nothing of it changes meanwhile. A driver that
	// does not know it would let pods write, so it is of version 4.
	Leaving *Leaving `json:"leaving,omitempty"`
	// Keep is for how many seconds the volume is in the trash at least, whatever its class and its pool say. Version 4.
	Keep    int64     `json:"keep,omitempty"`
	Created time.Time `json:"created"`
}

// Limit is what may count to the volume's ID. A snapshot that shares its data with a volume counts to none.
func (r Record) Limit() quota.Limit {
	if r.Kind == OfSnapshot {
		return quota.Limit{Bytes: r.Held}
	}
	return quota.Limit{Bytes: r.Bytes + r.Held, Inodes: r.Inodes}
}

// InodesAsked is the inode limit that the class asked for, 0 for none.
func (r Record) InodesAsked() int64 {
	if r.InodesFrom != FromClass {
		return 0
	}
	return r.Inodes
}

const suffix = ".json"

// Path is where a volume's record lies, relative to csi/.
func Path(id string) string { return path.Join(disk.VolumesDir, id+suffix) }

// Prepare, Add and Replace refuse a record that Read would not take (ErrUnwritten), and change nothing then: without
// one that can be read a volume cannot be deleted.

// Prepare makes a record durable under a temporary name, where nobody looks for records. The name itself is durable
// with whatever is changed on the filesystem after it, such as the limit that it names: XFS, ext4 and btrfs keep the
// order of what they log. TestPowerCuts (tests/vm) holds them to that.
func Prepare(d disk.FS, r Record) error { return write(d, r, disk.PrepareFile) }

// Place gives a prepared record its name, durably after a sync of disk.VolumesDir. It never replaces one (fs.ErrExist).
func Place(d disk.FS, id string) error {
	if err := disk.PlaceFile(d, Path(id)); err != nil {
		return fmt.Errorf("record volume %s: %w", id, err)
	}
	return nil
}

// Forget removes a record that was prepared and not placed; none there is no error.
func Forget(d disk.FS, id string) error { return disk.ForgetFile(d, Path(id)) }

// Withdraw makes a record a prepared one again, durably. None there is no error.
func Withdraw(d disk.FS, id string) error {
	if err := Forget(d, id); err != nil {
		return err
	}
	if err := d.Rename(Path(id), disk.Prepared(Path(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("withdraw the record of volume %s: %w", id, err)
	}
	if err := d.Sync(disk.VolumesDir); err != nil {
		return fmt.Errorf("make it durable that the record of volume %s is withdrawn: %w", id, err)
	}
	return nil
}

// Add makes a record durable. It never replaces one (fs.ErrExist). On error no record is left.
func Add(d disk.FS, r Record) error { return write(d, r, disk.CreateFile) }

func write(d disk.FS, r Record, how func(disk.FS, string, []byte) error) error {
	r.Version = r.version()
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of volume %s: %w", r.ID, err)
	}
	if data = append(data, '\n'); len(data) > disk.MaxFile {
		return fmt.Errorf("%w: that of %s would have %s, and at most %s is read; shorten its parameters",
			ErrUnwritten, r.ID, bytesize.Format(int64(len(data))), bytesize.Format(disk.MaxFile))
	}
	if _, err := Decode(data); err != nil {
		return fmt.Errorf("%w: that of %s: %w", ErrUnwritten, r.ID, err)
	}
	if err := how(d, Path(r.ID), data); err != nil {
		return fmt.Errorf("record volume %s: %w", r.ID, err)
	}
	return nil
}

// Read returns a record; ErrNotFound where there is none, ErrBroken where it cannot be used: unreadable, truncated, for
// another id, or of a version that this driver does not know (ErrNewer, if that is a later one).
func Read(d disk.FS, id string) (Record, error) {
	data, err := d.ReadFile(Path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("%w: no record of %s", ErrNotFound, id)
	}
	var r Record
	if err == nil {
		r, err = Decode(data)
	}
	if err == nil && r.ID != id {
		err = fmt.Errorf("it is for volume %q", r.ID)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: csi/%s: %w; its data is untouched, restore the file to use the volume again",
			ErrBroken, Path(id), err)
	}
	return r, nil
}

// Decode parses and checks the content of a record file.
func Decode(data []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(data, &r)
	switch {
	case r.Version > Version: // whose fields may be others
		return Record{}, fmt.Errorf("%w: %w", ErrNewer, versionError(r))
	case err != nil:
		return Record{}, fmt.Errorf("not a complete record: %w", err)
	case r.Version < versionWithoutCopies:
		return Record{}, versionError(r)
	case nodeapi.ValidateID(r.ID) != nil:
		return Record{}, nodeapi.ValidateID(r.ID)
	case r.Kind != OfVolume && (r.Kind != OfSnapshot || r.Source == nil):
		return Record{}, fmt.Errorf("its kind is %.64q and its source %s; want a volume, or a snapshot of one",
			r.Kind, r.Source)
	case min(r.Bytes, r.Held, r.Keep) < 0:
		return Record{}, fmt.Errorf("bytes is %s, held %s and keep %ds; none may be negative",
			bytesize.Format(r.Bytes), bytesize.Format(r.Held), r.Keep)
	}
	return r, nil
}

func versionError(r Record) error {
	return fmt.Errorf("it has version %d, and this driver reads versions %d to %d; install the driver that wrote it",
		r.Version, versionWithoutCopies, Version)
}

// ReadKind is Read where what is of another kind is not there.
func ReadKind(d disk.FS, id string, kind Kind) (Record, error) {
	r, err := Read(d, id)
	if err == nil && r.Kind != kind {
		return Record{}, fmt.Errorf("%w: csi/%s is of another kind", ErrNotFound, Path(id))
	}
	return r, err
}

// Remove removes a record durably; none there is no error.
func Remove(d disk.FS, id string) error {
	err := d.Remove(Path(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of volume %s: %w", id, err)
	}
	if err := d.Sync(disk.VolumesDir); err != nil {
		return fmt.Errorf("make the removal of volume %s's record durable: %w", id, err)
	}
	return nil
}

// List gives the ids of all record files, usable or not, and of those that were prepared and not
// placed. Foreign names are passed over.
func List(d disk.Reader) (placed, prepared []string, err error) {
	entries, err := d.ReadDir(disk.VolumesDir)
	if err != nil {
		return nil, nil, fmt.Errorf("list the records: %w", err)
	}
	for _, e := range entries {
		name, temporary := disk.PreparedFor(e.Name)
		if !temporary {
			name = e.Name
		}
		id, isRecord := strings.CutSuffix(name, suffix)
		switch {
		case !isRecord || e.Dir || nodeapi.ValidateID(id) != nil:
		case temporary:
			prepared = append(prepared, id)
		default:
			placed = append(placed, id)
		}
	}
	return placed, prepared, nil
}

// ReadPrepared reads a record that was prepared and not placed; ErrBroken where it is not complete.
func ReadPrepared(d disk.FS, id string) (Record, error) {
	data, err := d.ReadFile(disk.Prepared(Path(id)))
	if err != nil {
		return Record{}, err
	}
	r, err := Decode(data)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return r, nil
}
