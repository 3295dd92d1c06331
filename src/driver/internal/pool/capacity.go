package pool

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// promises is what a pool's capacity is computed from besides the filesystem's own numbers, all in bytes.
type promises struct {
	// promised is the sum of the records' sizes and of what is reserved for volumes being made.
	promised int64
	// used is what the volumes hold of it on the disk. Where that cannot be measured, every promise counts as used in full.
	used int64
	// enforced tells whether the backend keeps volumes to their size.
	enforced bool
}

// promises needs the lock. In a pool that enforces nothing, what volumes use is not known, so each counts in full. Elsewhere use
// is counted every few seconds: not to oversell meanwhile, what is foreign is taken as it was then, and what was written since
// as the volumes'. Volumes there that nothing is enforced on were promised nothing: they count by what they hold, as foreign.
func (l *Ledger) promises(space poolfs.Space) promises {
	if !l.enforced {
		return promises{promised: l.promised, used: l.promised}
	}
	return promises{promised: l.promised - l.loose, used: max(0, space.Used-l.foreign), enforced: true}
}

// totals are what a ledger adds up to. Sizes are in bytes.
type totals struct {
	volumes  int   // with a record
	promised int64 // to them, and to those being made
	room     int64 // that can still be promised: volumes grow by it, also where none can be made
	largest  int64 // volume that could be made now
}

func (l *Ledger) totals(space poolfs.Space) totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := totals{volumes: len(l.records), promised: l.promised}
	if l.closed == "" || l.enforced { // where the quota is off that has to be on, volumes do not grow either
		t.room = available(l.spec, space, l.promises(space))
	}
	full := l.spec.MaxVolumes > 0 && l.volumes() >= l.spec.MaxVolumes
	if l.selected && l.closed == "" && !full {
		t.largest = t.room
	}
	return t
}

// available is what can still be promised, in bytes, never below 0 (docs/explanation/capacity.md):
//
//	min(free − reserve, (used + free − reserve − foreign) × overcommit − promised), foreign = used on the filesystem − used by volumes
//
// Used and free together are less than the filesystem's size where it keeps something for root (ext4) or for its own metadata (btrfs).
// The second term holds where sizes are enforced (overcommit 1 unless configured), and elsewhere only when
// overcommit is configured: what nobody enforces cannot be promised, so only free space counts.
func available(spec poolspec.Pool, space poolfs.Space, p promises) int64 {
	reserve := spec.Reserve.Of(space.Size)
	room := space.Free - reserve
	overcommit := spec.Overcommit
	if overcommit == 0 && p.enforced {
		overcommit = 1
	}
	if overcommit > 0 {
		foreign := max(0, space.Used-p.used)
		unpromised := float64(usable(space)-reserve-foreign)*overcommit - float64(p.promised)
		room = min(room, int64(unpromised))
	}
	return max(0, room)
}

// usable is what can ever be used of a filesystem.
func usable(space poolfs.Space) int64 { return min(space.Size, space.Used+space.Free) }

// check refuses a volume that there is no room for, saying which limit it meets.
func check(spec poolspec.Pool, space poolfs.Space, p promises, bytes int64, volumes int) error {
	if spec.MaxVolumes > 0 && volumes >= spec.MaxVolumes {
		return fmt.Errorf("%w: pool %s holds %d volumes on this node, maxVolumes is %d", volume.ErrNoSpace, spec.Name, volumes, spec.MaxVolumes)
	}
	room := available(spec, space, p)
	if bytes > room {
		return noRoom(spec, space, p.promised, fmt.Sprintf("pool %s can take a volume of at most %d bytes", spec.Name, room), bytes)
	}
	return nil
}

func noRoom(spec poolspec.Pool, space poolfs.Space, promised int64, what string, asked int64) error {
	return fmt.Errorf("%w: %s (size %d, free %d, reserve %d, promised %d), asked for %d",
		volume.ErrNoSpace, what, space.Size, space.Free, spec.Reserve.Of(space.Size), promised, asked)
}
