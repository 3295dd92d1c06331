package memfs

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// limits are a filesystem's accounts, as programs see them and as they are on the disk. No sync of a directory makes them durable: ext4
// and btrfs write them when they sync or commit the whole filesystem, only XFS has them in the order of all other changes.
type limits struct{ now, disk map[uint32]poolfs.Limit }

func newLimits(all map[uint32]poolfs.Limit) limits {
	return limits{now: maps.Clone(all), disk: maps.Clone(all)}
}

func (l *limits) set(number uint32, to poolfs.Limit) {
	if l.now == nil {
		l.now = map[uint32]poolfs.Limit{}
	}
	l.now[number] = to
}

// chance is what a crash leaves: each account that changed as it was or as it is.
func (l *limits) chance(rng *rand.Rand) map[uint32]poolfs.Limit {
	left := maps.Clone(l.disk)
	if left == nil {
		left = map[uint32]poolfs.Limit{}
	}
	numbers := slices.Sorted(maps.Keys(l.now))
	for number := range l.disk {
		if _, ok := l.now[number]; !ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		is, ok := l.now[number]
		was, had := l.disk[number]
		if (ok == had && is == was) || coin(rng) {
			continue
		}
		if ok {
			left[number] = is
		} else {
			delete(left, number)
		}
	}
	return left
}

// device is the device number that stat(2) shows: btrfs has one for each subvolume.
func (n *node) device() uint64 {
	if n.subvolume != 0 {
		return n.subvolume
	}
	return n.on.number
}

// account of a new inode is its parent's; what is below a subvolume counts where that counts.
func (d *Disk) accountAt(n *node) uint32 {
	if n.on.kind != "btrfs" {
		return n.now.account
	}
	return d.usage(n.on).of[n]
}

// charge counts a new inode to its parent's account; EDQUOT where a limit is reached. What was done by then has no effect.
func (d *Disk) charge(parent *node, path string, made *node, data []byte) error {
	if parent.on.quota == poolfs.QuotaOff {
		if parent.on.kind != "btrfs" {
			made.now.account = parent.now.account
		}
		return nil
	}
	number := d.accountAt(parent)
	if number == 0 || parent.on.lost != nil {
		return nil
	}
	limit, used := parent.on.limits.now[number], d.usage(parent.on).by[number]
	if (limit.Bytes > 0 && used.BytesUsed+int64(len(data)) > limit.Bytes) || (limit.Inodes > 0 && used.InodesUsed+1 > limit.Inodes) {
		return &fs.PathError{Op: "create", Path: path, Err: syscall.EDQUOT}
	}
	if parent.on.quota == poolfs.QuotaProject {
		made.now.account = number
	}
	return nil
}

// usage is what the accounts of a filesystem hold.
type usage struct {
	by map[uint32]poolfs.Account
	of map[*node]uint32
}

func (d *Disk) usage(dev *device) usage {
	u := usage{by: map[uint32]poolfs.Account{}, of: map[*node]uint32{}}
	var visit func(n *node, above uint32)
	visit = func(n *node, above uint32) {
		number := n.now.account
		if number == 0 && dev.kind == "btrfs" {
			number = above
		}
		u.of[n] = number
		if number != 0 {
			a := u.by[number]
			a.BytesUsed += int64(len(n.now.data))
			a.InodesUsed++
			u.by[number] = a
		}
		for _, child := range n.now.entries {
			visit(child, number)
		}
	}
	visit(dev.root, 0)
	return u
}

// Quota implements poolfs.Quotas.
func (f *dir) Quota() (on poolfs.Quota, why string, err error) {
	err = f.within("quota", ".", func(*node, string, string) error {
		on = f.node.on.quota
		if on == poolfs.QuotaOff {
			why = f.node.on.kind + " has no quota on"
		}
		return nil
	})
	return on, why, err
}

// EnableQuota implements poolfs.Quotas.
func (f *dir) EnableQuota() error {
	return f.within("enable quota", ".", func(_ *node, _, path string) error {
		if f.node.on.kind != "btrfs" {
			return fmt.Errorf("%w: %s has none", poolfs.ErrNoQuota, f.node.on.kind)
		}
		if err := f.disk.step("enable quota", path, f.node.on); err != nil {
			return err
		}
		f.node.on.quota = poolfs.QuotaSimple
		return nil
	})
}

// MkdirCounted implements poolfs.Quotas. A crash between its two steps leaves a directory that counts nowhere.
func (f *dir) MkdirCounted(name string, mode fs.FileMode, number uint32) error {
	return f.within("mkdir", name, func(parent *node, last, path string) error {
		if err := f.hasQuota(path); err != nil {
			return err
		}
		if err := f.disk.mkdir(parent, last, path, mode); err != nil {
			return err
		}
		made := parent.now.entries[last]
		if made.on.kind == "btrfs" {
			f.disk.lastDev++
			made.subvolume = f.disk.lastDev
		}
		if err := f.disk.step("count", path, made.on); err != nil {
			if !f.disk.faults.crashed {
				delete(parent.now.entries, last)
			}
			return err
		}
		made.now.account = number
		made.on.whole = made.subvolume != 0
		return nil
	})
}

func (f *dir) hasQuota(path string) error {
	if f.node.on.quota == poolfs.QuotaOff {
		return &fs.PathError{Op: "quota", Path: path, Err: poolfs.ErrNoQuota}
	}
	return nil
}

// mayLimit is hasQuota for calls that need CAP_SYS_ADMIN.
func (f *dir) mayLimit(path string) error {
	if err := f.hasQuota(path); err != nil {
		return err
	}
	if f.node.on.unprivileged {
		return &fs.PathError{Op: "quotactl", Path: path, Err: syscall.EPERM}
	}
	return nil
}

// Count implements poolfs.Quotas.
func (f *dir) Count(name string, number uint32) error {
	return f.within("count", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("count", path, parent, last)
		if err != nil {
			return err
		}
		if n.on.kind == "btrfs" && n.subvolume == 0 {
			return &fs.PathError{Op: "count", Path: path, Err: syscall.EINVAL}
		}
		if n.now.account == number {
			return nil
		}
		if err := f.disk.step("count", path, n.on); err != nil {
			return err
		}
		n.now.account = number
		return nil
	})
}

// CountedBy implements poolfs.Quotas.
func (f *dir) CountedBy(name string) (number uint32, err error) {
	err = f.within("counted", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("counted", path, parent, last)
		if err != nil {
			return err
		}
		number = n.now.account
		return nil
	})
	return number, err
}
