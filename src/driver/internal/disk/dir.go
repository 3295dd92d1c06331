package disk

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/removetree"
)

// hostFS is an FS on a real directory.
type hostFS struct{ top *os.File }

// OpenDir opens a directory of this process's own file tree (the state directory).
func OpenDir(path string) (FS, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &hostFS{top: f}, nil
}

// Close implements FS; a second Close does nothing.
func (d *hostFS) Close() error {
	if err := d.top.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// with opens a directory for a call.
func (d *hostFS) with(name string, call func(dir *os.File) error) error {
	dir, err := openat.Open(d.top, name, unix.O_DIRECTORY, openat.SameMount)
	if err != nil {
		return err
	}
	defer dir.Close()
	return call(dir)
}

// at opens the directory that has a name, for a call that makes, changes or removes that.
func (d *hostFS) at(op, name string, call func(dir *os.File, last string) error) error {
	if !openat.Valid(name) || name == "." {
		return openat.Failed(op, openat.Path(d.top, name), fs.ErrInvalid)
	}
	return d.with(path.Dir(name), func(dir *os.File) error {
		err := openat.Retry(func() error { return call(dir, path.Base(name)) })
		return openat.Failed(op, openat.Path(d.top, name), err)
	})
}

func (d *hostFS) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	err := d.at("remove", name, func(dir *os.File, last string) error {
		return removetree.Remove(ctx, dir, last, step)
	})
	if errors.Is(err, fs.ErrNotExist) { // without the directory above, nothing is left
		return nil
	}
	return err
}

func (d *hostFS) ReadFile(name string) ([]byte, error) {
	f, err := openat.Open(d.top, name, unix.O_NONBLOCK, openat.SameMount) // to open a FIFO would block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, openat.Failed("read", f.Name(), unix.EISDIR)
	case !info.Mode().IsRegular():
		return nil, openat.Failed("read", f.Name(), openat.ErrKind)
	case info.Size() > MaxFile:
		return nil, openat.Failed("read", f.Name(), unix.EFBIG)
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	return data[:n], err
}

func (d *hostFS) ReadDir(name string) (entries []Entry, err error) {
	err = d.with(name, func(dir *os.File) error {
		l := openat.Listing{Dir: dir}
		e, err := l.Take()
		for ; e != nil; e, err = l.Take() {
			entries = append(entries, Entry{Name: e.Name, Dir: e.IsDir})
		}
		return err
	})
	return entries, err
}

// Stat implements FS. Of a mount point it shows what is mounted there.
func (d *hostFS) Stat(name string) (Info, error) {
	f, err := openat.Open(d.top, name, unix.O_PATH|unix.O_NOFOLLOW, openat.Beneath)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	return stat(f)
}

func (d *hostFS) Space() (Space, error) {
	st, err := statfs(d.top)
	unit := cmp.Or(st.Frsize, int64(st.Bsize)) // some filesystems leave the first 0
	return Space{
		Size:       int64(st.Blocks) * unit,
		Used:       int64(st.Blocks-st.Bfree) * unit,
		Free:       int64(st.Bavail) * unit,
		Inodes:     int64(st.Files),
		InodesUsed: int64(st.Files - st.Ffree),
		InodesFree: int64(st.Ffree),
		ReadOnly:   st.Flags&unix.ST_RDONLY != 0 || stopped(d.top, st),
	}, err
}

func (d *hostFS) Mkdir(name string, mode fs.FileMode) error {
	return d.at("mkdir", name, func(dir *os.File, last string) error { return mkdir(dir, last, mode) })
}

// mkdir makes a directory with exactly this mode; on error none is left.
func mkdir(dir *os.File, name string, mode fs.FileMode) error {
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return openat.Failed("mkdir", openat.Path(dir, name), err)
	}
	made, err := openat.Open(dir, name, unix.O_DIRECTORY, openat.SameMount)
	if err == nil {
		defer made.Close()
		err = made.Chmod(mode)
	}
	if err != nil {
		err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR))
	}
	return err
}

func (d *hostFS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return d.at("write", name, func(dir *os.File, last string) error {
		fd, err := unix.Openat(int(dir.Fd()), last, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), openat.Path(dir, last))
		if _, err = f.Write(data); err == nil {
			err = f.Chmod(mode)
		}
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), last, 0))
		}
		return err
	})
}

func (d *hostFS) Own(name string, uid, gid int, mode fs.FileMode) error {
	f, _, err := openat.Plain(d.top, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chown(uid, gid); err != nil {
		return err
	}
	return f.Chmod(mode)
}

func (d *hostFS) Unlock(name string) error {
	return d.with(name, func(dir *os.File) error {
		if err := btrfs.MakeWritable(dir); err != nil {
			return err
		}
		_, err := openat.Unlock(dir)
		return err
	})
}

func (d *hostFS) Rename(from, to string) error { return d.rename(from, to, unix.RENAME_NOREPLACE) }

// Replace implements FS; a directory is EISDIR.
func (d *hostFS) Replace(from, to string) error { return d.rename(from, to, 0) }

func (d *hostFS) rename(from, to string, flags uint) error {
	return d.at("rename", from, func(source *os.File, old string) error {
		return d.at("rename", to, func(dest *os.File, name string) error {
			info, err := d.Stat(from)
			if err == nil && info.Mode.IsDir() && flags == 0 { // rename(2) would replace an empty one
				err = unix.EISDIR
			} else {
				err = unix.Renameat2(int(source.Fd()), old, int(dest.Fd()), name, flags)
			}
			if errors.Is(err, unix.EINVAL) && flags == unix.RENAME_NOREPLACE {
				err = renameToFree(source, old, dest, name)
			}
			if err != nil {
				from, to := openat.Path(source, old), openat.Path(dest, name)
				return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
			}
			return nil
		})
	})
}

// renameToFree is for filesystems that do not know RENAME_NOREPLACE, as NFS and 9p. A name that somebody makes between
// its two steps is replaced if it is a file or an empty directory.
func renameToFree(source *os.File, old string, dest *os.File, name string) error {
	var taken unix.Stat_t
	err := unix.Fstatat(int(dest.Fd()), name, &taken, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return unix.Renameat(int(source.Fd()), old, int(dest.Fd()), name)
}

func (d *hostFS) Link(from, to string) error {
	return d.at("link", from, func(source *os.File, old string) error {
		return d.at("link", to, func(dest *os.File, name string) error {
			if err := unix.Linkat(int(source.Fd()), old, int(dest.Fd()), name, 0); err != nil {
				return &os.LinkError{Op: "link", Old: openat.Path(source, old), New: openat.Path(dest, name), Err: err}
			}
			return nil
		})
	})
}

func (d *hostFS) Remove(name string) error {
	return d.at("remove", name, func(dir *os.File, last string) error {
		err := unix.Unlinkat(int(dir.Fd()), last, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(int(dir.Fd()), last, unix.AT_REMOVEDIR)
		}
		return err
	})
}

func (d *hostFS) Open(name string) (Handle, error) {
	f, err := openat.Open(d.top, name, unix.O_DIRECTORY, openat.SameMount)
	if err != nil {
		return Handle{}, err
	}
	info, err := stat(f)
	if err != nil {
		return Handle{}, errors.Join(err, f.Close())
	}
	return Handle{File: f, Dev: info.Dev, Ino: info.Ino}, nil
}

func (d *hostFS) Sync(name string) error { return d.with(name, (*os.File).Sync) }

func stat(f *os.File) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Info{}, openat.Failed("stat", f.Name(), errors.ErrUnsupported)
	}
	return Info{Dev: st.Dev, Ino: st.Ino, Mode: info.Mode(), UID: int(st.Uid), GID: int(st.Gid)}, nil
}

func statfs(f *os.File) (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := openat.Retry(func() error { return unix.Fstatfs(int(f.Fd()), &st) })
	return st, openat.Failed("statfs", f.Name(), err)
}
