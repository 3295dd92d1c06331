package poolfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/beneath"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
)

// withQuota makes an FS of a directory, with the quota that its kind of filesystem can have.
func withQuota(dir *beneath.Dir) (FS, error) {
	f := hostFS{dir}
	st, err := dir.Statfs()
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	switch int64(st.Type) {
	case unix.XFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC:
		return projectFS{f}, nil
	case unix.BTRFS_SUPER_MAGIC:
		return btrfsFS{f}, nil
	default:
		return f, nil
	}
}

// with runs do on an open directory.
func (f hostFS) with(name string, do func(dir *os.File) error) error {
	dir, err := f.OpenDir(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // nothing was written through it
	return do(dir)
}

// projectFS is a directory on XFS or ext4.
type projectFS struct{ hostFS }

// Quota implements Quotas.
func (f projectFS) Quota() (on Quota, why string, err error) {
	err = f.with(".", func(dir *os.File) error {
		support, err := projectquota.Probe(dir)
		if support.Enforcing {
			on = QuotaProject
		}
		why = support.Reason
		return err
	})
	return on, why, err
}

// EnableQuota implements Quotas.
func (f projectFS) EnableQuota() error {
	err := f.with(".", projectquota.Enforce)
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrNoQuota, err)
	}
	return err
}

// Counts implements Quotas: project quota is checked by the kernel or by fsck before it is on.
func (projectFS) Counts() (Counts, error) { return CountsRight, nil }

// Recount implements Quotas.
func (projectFS) Recount() error { return nil }

// MkdirCounted implements Quotas.
func (f projectFS) MkdirCounted(name string, mode fs.FileMode, number uint32) error {
	if err := f.Mkdir(name, mode); err != nil {
		return err
	}
	if err := f.Count(name, number); err != nil {
		return errors.Join(err, f.Remove(name))
	}
	return nil
}

// Count implements Quotas.
func (f projectFS) Count(name string, number uint32) error {
	return f.with(name, func(dir *os.File) error { return join(dir, number, number != 0) })
}

// join makes a file or directory part of a project.
func join(file *os.File, number uint32, inherit bool) error {
	is, inherits, err := projectquota.ProjectID(file)
	if err != nil || (is == number && inherits == inherit) {
		return err
	}
	return projectquota.SetProjectID(file, number, inherit)
}

// elsewhere is the error for a file that has a name in another volume too, and counts there.
func elsewhere(file *os.File, number uint32) error {
	is, _, err := projectquota.ProjectID(file)
	if err != nil || is == number || is < FirstNumber {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Nlink == 1 {
		return err
	}
	return &fs.PathError{Op: "count", Path: file.Name(), Err: fmt.Errorf(
		"it has %d names and counts to number %d, which is another volume's: copy the data again without hard links to other volumes", st.Nlink, is)}
}

// CountTree implements Quotas. A file that has another project already, which no copy has, is taken over too, unless
// it is another volume's as well.
func (f projectFS) CountTree(ctx context.Context, name string, number uint32) error {
	err := f.Walk(ctx, name, func(file *os.File, isDir bool) error {
		if !isDir {
			if err := elsewhere(file, number); err != nil {
				return err
			}
		}
		return join(file, number, isDir && number != 0)
	})
	if err == nil {
		err = f.with(name, func(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) })
	}
	if err != nil {
		return err
	}
	return f.Count(name, number)
}

// CountedBy implements Quotas.
func (f projectFS) CountedBy(name string) (number uint32, err error) {
	err = f.with(name, func(dir *os.File) error {
		number, _, err = projectquota.ProjectID(dir)
		return err
	})
	return number, err
}

// Account implements Quotas.
func (f projectFS) Account(number uint32) (a Account, err error) {
	err = f.with(".", func(dir *os.File) error {
		q, err := projectquota.Get(dir, number)
		a = account(q)
		return err
	})
	return a, err
}

func account(q projectquota.Quota) Account {
	return Account{
		Number: q.ID, Limit: Limit{Bytes: int64(q.Limit.Bytes), Inodes: int64(q.Limit.Inodes)},
		BytesUsed: int64(q.Usage.Bytes), InodesUsed: int64(q.Usage.Inodes),
	}
}

// InUse implements Quotas.
func (f projectFS) InUse(number uint32) (bool, error) {
	a, err := f.Account(number)
	return a.BytesUsed > 0 || a.InodesUsed > 0, err
}

// SetLimit implements Quotas.
func (f projectFS) SetLimit(number uint32, l Limit) error {
	return f.with(".", func(dir *os.File) error {
		return projectquota.SetLimit(dir, number, projectquota.Limit{Bytes: uint64(l.Bytes), Inodes: uint64(l.Inodes)})
	})
}

// RemoveAccount implements Quotas.
func (f projectFS) RemoveAccount(number uint32) error {
	return f.with(".", func(dir *os.File) error {
		q, err := projectquota.Get(dir, number)
		if err != nil {
			return err
		}
		if q.Usage != (projectquota.Usage{}) { // it may be somebody's volume, moved by hand: its limit stays
			return fmt.Errorf("project %d still holds %d bytes and %d inodes: %w", number, q.Usage.Bytes, q.Usage.Inodes, syscall.EBUSY)
		}
		return projectquota.SetLimit(dir, number, projectquota.Limit{})
	})
}

// Accounts implements Quotas.
func (f projectFS) Accounts(first, last uint32) (all []Account, err error) {
	err = f.with(".", func(dir *os.File) error {
		list, err := projectquota.List(dir, first, last)
		for _, q := range list {
			all = append(all, account(q))
		}
		return err
	})
	return all, err
}
