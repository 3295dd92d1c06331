package poolfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
)

// btrfsFS is a directory on btrfs. An account's number N is that of the qgroup 1/N. Calls about qgroups go through the directory
// itself: through one inside a volume that is full they would be EDQUOT.
type btrfsFS struct{ hostFS }

func group(number uint32) btrfs.QgroupID { return btrfs.NewQgroupID(1, uint64(number)) }

// Quota implements Quotas.
func (f btrfsFS) Quota() (on Quota, why string, err error) {
	err = f.with(".", func(dir *os.File) error {
		status, err := btrfs.QuotaStatus(dir)
		switch status.Mode {
		case btrfs.Simple:
			on = QuotaSimple
		case btrfs.Full:
			on = QuotaFull
		default:
			why = "quota is off: switch it on with `btrfs quota enable --simple` (Linux 6.7 or newer)"
		}
		return err
	})
	return on, why, err
}

// EnableQuota implements Quotas.
func (f btrfsFS) EnableQuota() error {
	return f.with(".", func(dir *os.File) error {
		err := btrfs.EnableSimpleQuota(dir)
		if errors.Is(err, errors.ErrUnsupported) {
			err = btrfs.EnableFullQuota(dir)
		}
		return err
	})
}

// Counts implements Quotas.
func (f btrfsFS) Counts() (Counts, error) {
	counts := CountsRight
	err := f.with(".", func(dir *os.File) error {
		status, err := btrfs.QuotaStatus(dir)
		switch {
		case status.Rescanning:
			counts = CountsAnew
		case status.Inconsistent:
			counts = CountsWrong
		}
		return err
	})
	return counts, err
}

// Recount implements Quotas.
func (f btrfsFS) Recount() error {
	err := f.with(".", btrfs.Rescan)
	if errors.Is(err, syscall.EINPROGRESS) {
		return nil
	}
	return err
}

// MkdirCounted implements Quotas. Making a subvolume does not end the log, renaming one does (btrfs_rename, fs/btrfs/inode.c): hence
// the two names. The first one could be an id, so that recovery removes what a crash leaves in staging.
func (f btrfsFS) MkdirCounted(name string, mode fs.FileMode, number uint32) error {
	dir, first := path.Dir(name), "new."+rand.Text()
	err := f.with(dir, func(parent *os.File) error {
		_, err := btrfs.CreateSubvolume(parent, first, group(number))
		return err
	})
	if err != nil {
		return err
	}
	first = path.Join(dir, first)
	err = f.Chmod(first, mode)
	if err == nil {
		err = f.Rename(first, name)
	}
	if err != nil {
		return errors.Join(err, f.RemoveTree(context.Background(), first, nil))
	}
	return nil
}

// Count implements Quotas.
func (f btrfsFS) Count(name string, number uint32) error {
	return f.withBoth(name, func(pool, dir *os.File) error {
		is, err := btrfs.IsSubvolume(dir)
		if err != nil {
			return err
		}
		if !is || number == 0 {
			return fmt.Errorf("csi/%s is no subvolume that could be counted by %d: %w", name, number, fs.ErrInvalid)
		}
		id, err := btrfs.SubvolumeID(dir)
		if err != nil {
			return err
		}
		groups, err := btrfs.Groups(pool, btrfs.NewQgroupID(0, id))
		if err != nil {
			return err
		}
		if only(groups) != number {
			if err := btrfs.AssignQgroup(pool, btrfs.NewQgroupID(0, id), group(number)); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		_, err = btrfs.Rejoin(pool, id, group(number))
		return err
	})
}

// CountTree implements Quotas: what is in a subvolume counts where that counts.
func (f btrfsFS) CountTree(_ context.Context, name string, number uint32) error {
	return f.Count(name, number)
}

// CountedBy implements Quotas.
func (f btrfsFS) CountedBy(name string) (number uint32, err error) {
	err = f.withBoth(name, func(pool, dir *os.File) error {
		is, err := btrfs.IsSubvolume(dir)
		if err != nil || !is {
			return err
		}
		id, err := btrfs.SubvolumeID(dir)
		if err != nil {
			return err
		}
		groups, err := btrfs.Groups(pool, btrfs.NewQgroupID(0, id))
		number = only(groups)
		return err
	})
	return number, err
}

// isAccount tells whether a qgroup can be a volume's account, and is nobody else's.
func isAccount(q btrfs.QgroupID) bool {
	return q.Level() == 1 && q.ID() >= FirstNumber && q.ID() <= math.MaxUint32
}

// only is the account that a subvolume's groups are, the largest where an admin has put it into others as well.
func only(groups []btrfs.QgroupID) (number uint32) {
	for _, g := range groups {
		if g.Level() == 1 && g.ID() <= math.MaxUint32 {
			number = max(number, uint32(g.ID()))
		}
	}
	return number
}

func (f btrfsFS) withBoth(name string, do func(pool, dir *os.File) error) error {
	return f.with(".", func(pool *os.File) error {
		return f.with(name, func(dir *os.File) error { return do(pool, dir) })
	})
}

// Account implements Quotas.
func (f btrfsFS) Account(number uint32) (a Account, err error) {
	a.Number = number
	err = f.with(".", func(pool *os.File) error {
		q, err := btrfs.QgroupUsage(pool, group(number))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		a = qgroup(q)
		return err
	})
	return a, err
}

func qgroup(q btrfs.Qgroup) Account {
	return Account{Number: uint32(q.ID.ID()), Limit: Limit{Bytes: int64(q.Limit)}, BytesUsed: int64(q.Referenced)}
}

// InUse implements Quotas.
func (f btrfsFS) InUse(number uint32) (is bool, err error) {
	err = f.with(".", func(pool *os.File) error {
		is, err = btrfs.InUse(pool, group(number))
		return err
	})
	return is, err
}

// SetLimit implements Quotas. btrfs has no limit on inodes.
func (f btrfsFS) SetLimit(number uint32, l Limit) error {
	return f.with(".", func(pool *os.File) error {
		if err := btrfs.CreateQgroup(pool, group(number)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return btrfs.SetQgroupLimit(pool, group(number), uint64(l.Bytes))
	})
}

// RemoveAccount implements Quotas.
func (f btrfsFS) RemoveAccount(number uint32) error {
	return f.with(".", func(pool *os.File) error {
		err := btrfs.RemoveQgroup(pool, group(number))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// Accounts implements Quotas.
func (f btrfsFS) Accounts(first, last uint32) (all []Account, err error) {
	err = f.with(".", func(pool *os.File) error {
		list, err := btrfs.Qgroups(pool, 1)
		for _, q := range list {
			if id := q.ID.ID(); id >= uint64(first) && id <= uint64(last) {
				all = append(all, qgroup(q))
			}
		}
		return err
	})
	return all, err
}

// RemoveTree implements FS. A subvolume goes as a whole, however many files it holds, after those in it; what cannot go so is
// emptied name by name.
func (f btrfsFS) RemoveTree(ctx context.Context, name string, pace func(context.Context) error) error {
	whole := false
	err := f.with(name, func(dir *os.File) (err error) {
		whole, err = btrfs.IsSubvolume(dir)
		return err
	})
	if err != nil || !whole || name == "." {
		return f.hostFS.RemoveTree(ctx, name, pace)
	}
	var stopped error
	wait := func(ctx context.Context) error {
		if stopped = ctx.Err(); stopped == nil && pace != nil {
			stopped = pace(ctx)
		}
		return stopped
	}
	err = f.with(path.Dir(name), func(parent *os.File) error { return btrfs.DestroyTree(ctx, parent, path.Base(name), isAccount, wait) })
	if err == nil || stopped != nil {
		return err
	}
	return f.hostFS.RemoveTree(ctx, name, pace)
}
