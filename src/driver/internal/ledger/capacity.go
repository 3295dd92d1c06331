package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// promises is what a pool's capacity is computed from besides the filesystem's own figures, all in bytes.
type promises struct {
	// promised is the sum of the records' sizes and of what is reserved for volumes being made.
	promised int64
	// used is what the volumes use of it on the disk. Where that cannot be measured, every promise counts as used in
	// full.
	used     int64
	enforced bool
}

// promises needs the lock. In a pool that enforces nothing, what volumes use is not known, so each counts in
// full. Elsewhere usage is read every few seconds: not to oversell meanwhile, other usage is taken as it was
// then, and what was written since as the volumes'. Volumes there that do not count to an ID were promised
// nothing: what they use is other usage.
func (l *Ledger) promises(space disk.Space) promises {
	if !l.enforced {
		return promises{promised: l.promised, used: l.promised}
	}
	return promises{promised: l.promised - l.unlimited, used: max(0, space.Used-l.other), enforced: true}
}

// allocatable is what can be promised now, in bytes, never below 0 (docs/explanation/capacity.md):
//
//	min(free − reserve, (usable − reserve − other usage) × overcommit − promised)
//
// usable is what can ever be used: used and free together are less than the filesystem's size where it keeps
// something for root (ext4) or for its own metadata (btrfs). Other usage is what is used on the filesystem and not by
// volumes. The second term applies where sizes are enforced (overcommit 1 unless configured), and elsewhere only when
// overcommit is configured: what nobody enforces cannot be promised, so only free space counts. Nothing can be
// promised without an inode to make it with, or on a filesystem that is read-only.
func allocatable(spec poolspec.Pool, space disk.Space, p promises) int64 {
	if space.ReadOnly || (space.Inodes > 0 && space.InodesFree == 0) {
		return 0
	}
	reserve := spec.Reserve.Of(space.Size)
	room := space.Free - reserve
	overcommit := spec.Overcommit
	if overcommit == 0 && p.enforced {
		overcommit = 1
	}
	if overcommit > 0 {
		usable := min(space.Size, space.Used+space.Free)
		other := max(0, space.Used-p.used)
		room = min(room, int64(float64(usable-reserve-other)*overcommit-float64(p.promised)))
	}
	return max(0, room)
}

// largest is what could be promised if the pool's volumes had the filesystem for themselves, as far as is known.
func largest(spec poolspec.Pool, space disk.Space, p promises) int64 {
	usable, own := min(space.Size, space.Used+space.Free), int64(0)
	if p.enforced {
		own = min(p.used, usable)
	}
	space.Used, space.Free, space.InodesFree = own, usable-own, space.Inodes
	return allocatable(spec, space, p)
}

// noRoom says which limit of the pool a request meets.
func noRoom(spec poolspec.Pool, space disk.Space, promised, room, asked int64) error {
	switch {
	case space.ReadOnly:
		return fmt.Errorf("%w: the filesystem of pool %s is read-only; find out why in the node's kernel log",
			ErrNoSpace, spec.Name)
	case space.Inodes > 0 && space.InodesFree == 0:
		return fmt.Errorf("%w: the filesystem of pool %s has no free inode; remove files", ErrNoSpace, spec.Name)
	}
	size := bytesize.Format
	return fmt.Errorf("%w: pool %s has room for %s (size %s, free %s, reserve %s, promised %s), asked for %s",
		ErrNoSpace, spec.Name, size(room), size(space.Size), size(space.Free), size(spec.Reserve.Of(space.Size)),
		size(promised), size(asked))
}

// QuotaIDs are those that volumes count to.
func (l *Ledger) QuotaIDs() []quota.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.owners))
}

// Observe takes note of what counts to the volumes' IDs, and of how many bytes are used on the filesystem. What no
// volume uses within its size is other usage: other files, the trash, and volumes that nothing is enforced on.
func (l *Ledger) Observe(used int64, usage map[quota.ID]quota.Use) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := int64(0)
	for id, volume := range l.owners {
		own += min(usage[id].Bytes, l.volumes[volume].Limit().Bytes)
	}
	l.other, l.guessed = max(0, used-own), false
}

// Guessed reports that usage has to be read again.
func (l *Ledger) Guessed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enforced && l.guessed
}

// Totals are what a ledger adds up to. Sizes are in bytes.
type Totals struct {
	Volumes, Refused int
	Uncounted        int    // volumes with an ID that their directory does not count to
	Promised         int64  // to volumes, and to those being made
	Growable         int64  // volumes can grow by it, also where none can be made but sizes are enforced
	Largest          int64  // volume that could be made now
	Closed           string // why no volume is made, "" where they are
}

// Totals adds up.
func (l *Ledger) Totals(space disk.Space) Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := Totals{
		Volumes: len(l.volumes) - l.snapshots, Refused: l.refused, Uncounted: l.uncounted,
		Promised: l.promised, Growable: allocatable(l.spec, space, l.promises(space)), Closed: l.closed,
	}
	full := l.spec.MaxVolumes > 0 && l.count() >= l.spec.MaxVolumes
	if l.selected && l.closed == "" && !full {
		t.Largest = t.Growable
	}
	if l.closed != "" && !l.enforced {
		t.Growable = 0
	}
	return t
}

// Short reports whether a request was refused since it was last asked that the pool may have room for without trash.
func (l *Ledger) Short() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	short := l.short
	l.short = false
	return short
}
