// Package quota limits directory trees by what the filesystem has: simple quota of btrfs, project quota of XFS and
// ext4, or nothing. It is the only package that knows which.
package quota

import (
	"context"
	"errors"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// ID is what a volume's files are counted by: a project ID, or the N of btrfs's qgroup 1/N. 0 is none.
type ID uint64

// Limit is what may count to an ID, in bytes and inodes; 0 means no limit.
type Limit struct{ Bytes, Inodes int64 }

// Use is what counts to an ID, in bytes and inodes. btrfs counts no inodes, and bytes as of its last commit, which is
// up to 30 s ago.
type Use struct{ Bytes, Inodes int64 }

// Enforcement says how far a volume is held to its size (docs/explanation/enforcement.md).
type Enforcement string

// Levels of enforcement, also the PV attribute `enforcement`.
const (
	Strict      Enforcement = "strict"      // no process in a pod gets past it
	Cooperative Enforcement = "cooperative" // the owner of a file can take it out of the volume's count
	None        Enforcement = "none"
)

// Names of backends in records, metrics and pool.json.
const (
	Plain   = "plain"
	Btrfs   = "btrfs"
	Project = "project"
)

// Errors of limits.
var (
	ErrUnsupported = errors.New("the pool's filesystem cannot do that")
	ErrTooSmall    = errors.New("the volume is too small for the filesystem")
	ErrNotCounted  = errors.New("the directory does not count to the volume's ID")
	ErrExhausted   = errors.New("the filesystem has no unused ID left")
)

// State is how a directory is counted.
type State struct {
	// ID is what the directory counts to, Limit what is set on that.
	ID    ID
	Limit Limit
	// Ordered reports that what is done in csi/ after the directory was made or moved is never on the disk without all
	// that was done there before, whoever syncs what; and that a sync of where it was moved to makes all of that
	// durable.
	Ordered bool
}

// Limits holds the directories of one open pool to their sizes. Names are as in disk.FS.
type Limits interface {
	// Make makes a directory of that mode that counts to an ID of its own, with a limit. It hands the ID to claim,
	// which makes it durable, before anything on the filesystem names it; claim may be called again with another ID. On
	// error nothing is left but what claim did. Where nothing is limited the ID is 0 and claim is called with that.
	// ErrUnsupported, ErrTooSmall, ErrExhausted.
	Make(name string, mode fs.FileMode, limit Limit, claim func(ID) error) (ID, error)
	// Check looks at how a directory is counted. On btrfs it first makes nested subvolumes of one that counts to id
	// count to it again.
	Check(name string, id ID) (State, error)
	// Set changes the limit of a directory that counts to id, else ErrNotCounted. The zero limit removes the ID,
	// whatever name is: nothing to remove is no error, EBUSY and no change where something counts to it.
	Set(name string, id ID, limit Limit) error
	// Usage is what counts to each of ids, those without any use too.
	Usage(ids []ID) (map[ID]Use, error)
}

// Pin is what a copy keeps charged to the ID of what it was made of, in bytes: data that both have, for as long as the
// copy is there.
type Pin struct {
	ID    ID    `json:"id"`
	Bytes int64 `json:"bytes"`
}

// Pinned is the most that pins keep charged to an ID, in bytes.
func Pinned(pins []Pin, id ID) (bytes int64) {
	for _, p := range pins {
		if p.ID == id {
			bytes = max(bytes, p.Bytes)
		}
	}
	return bytes
}

// Snapshots makes copies of directories of one open pool that share the data with them.
type Snapshots interface {
	// Flush writes a directory's data to the disk, so that Usage is of now.
	Flush(name string) error
	// Copy makes a copy of a directory as it is at one moment. It counts to an ID of its own with a limit, which claim
	// gets as in Limits.Make, or with the zero limit to ID 0. What it shares counts to the directory's ID. skipped is
	// how many subvolumes inside the directory are empty directories in the copy.
	Copy(from, name string, limit Limit, claim func(ID) error) (id ID, skipped int, err error)
	// Nested is how many subvolumes are inside a directory, which Copy leaves out.
	Nested(name string) (int, error)
	// Settled reports whether all that was removed from the filesystem has left the count.
	Settled() (bool, error)
}

// Backend is what holds a pool to its volumes' sizes.
type Backend struct {
	// Name is Plain, Btrfs or Project.
	Name        string
	Enforcement Enforcement
	// Reason says why sizes are not enforced and what to do about it, "" where they are.
	Reason string
	// Ordered is State.Ordered of a directory that Make made.
	Ordered bool
	// Changes are sentences about what Detect changed on the filesystem for an admin to know.
	Changes []string

	on        func(d disk.FS) limits
	snapshots func(d disk.FS) Snapshots // nil where the filesystem has none
	// inodes is nil where the backend does not limit them.
	inodes func(bytes int64, space disk.Space) int64
}

// leastInodes are those of the smallest volume that names no limit.
const leastInodes = 1024

// Inodes is how many a volume of a size in bytes may have that names no limit, on a filesystem of that space; 0 where
// the backend does not limit them. Else a volume of names alone could take all inodes of a pool.
func (b Backend) Inodes(bytes int64, space disk.Space) int64 {
	if b.inodes == nil || !b.Enforces() {
		return 0
	}
	return max(leastInodes, b.inodes(bytes, space))
}

// ext4Inodes is one for each 16 KiB, as mke2fs makes them by default, or the volume's share where there are more.
func ext4Inodes(bytes int64, space disk.Space) int64 {
	each := float64(16 << 10)
	if space.Inodes > 0 {
		each = min(each, float64(space.Size)/float64(space.Inodes))
	}
	return int64(float64(bytes) / max(1, each))
}

// xfsInodes is one for each 4 KiB: XFS makes inodes, of 512 bytes, as they are needed, and counts them to no project.
func xfsInodes(bytes int64, _ disk.Space) int64 { return bytes / 4096 }

// Enforces reports whether the backend holds volumes to their sizes.
func (b Backend) Enforces() bool { return b.Enforcement != None }

// Same reports whether both hold volumes in the same way.
func (b Backend) Same(other Backend) bool {
	return b.Name == other.Name && b.Enforcement == other.Enforcement
}

// On gives the limits of an open pool.
func (b Backend) On(d disk.FS) Limits { return b.on(d) }

// Snapshots gives those of an open pool, nil where its filesystem has none.
func (b Backend) Snapshots(d disk.FS) Snapshots {
	if b.snapshots == nil {
		return nil
	}
	return b.snapshots(d)
}

// Tree is a directory that Enforce makes count to an ID.
type Tree struct {
	Name   string
	ID     ID           // 0: it is to count to none, on XFS and ext4
	Cursor *disk.Cursor // where the work goes on
}

// NewID gives an unused ID for a tree that will be enforced. It hands the ID to claim, which makes it durable, before
// anything on the filesystem names it; claim may be called again with another ID. ErrUnsupported, ErrExhausted.
func (b Backend) NewID(d disk.FS, claim func(ID) error) (ID, error) { return b.on(d).newID(claim) }

// Enforce makes a directory that somebody put there, with all that is in it, count to an ID, whose limit Set sets then.
// A root that counts proves that the tree does. step is called after each file, and its error ends the work, which goes
// on from the cursor. ErrUnsupported with what to do about it.
func (b Backend) Enforce(ctx context.Context, d disk.FS, t Tree, step func(context.Context) error) error {
	return b.on(d).enforce(ctx, t, step)
}
