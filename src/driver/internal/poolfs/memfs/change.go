package memfs

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// WriteFile implements poolfs.FS. A crash between its three steps leaves an empty or a partly written file, unless
// the entry is forgotten.
func (f *dir) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return f.within("create", name, func(parent *node, last, path string) error {
		if err := free("create", path, parent, last); err != nil {
			return err
		}
		if err := f.disk.step("create", path, parent.on); err != nil {
			return err
		}
		file := f.disk.node(parent.on, 0, mode&permissions)
		if err := f.disk.charge(parent, path, file, data); err != nil {
			return err
		}
		parent.now.entries[last] = file
		err := f.fill(file, path, data)
		if err != nil && !f.disk.faults.crashed {
			delete(parent.now.entries, last)
		}
		return err
	})
}

func (f *dir) fill(file *node, path string, data []byte) error {
	if err := f.disk.step("write", path, file.on); err != nil {
		return err
	}
	file.now.data = slices.Clone(data)
	return f.disk.sync(file, path)
}

// ReadFile implements poolfs.FS.
func (f *dir) ReadFile(name string) ([]byte, error) {
	var data []byte
	err := f.within("read", name, func(parent *node, last, path string) error {
		n, err := f.opened("read", path, parent, last)
		if err != nil {
			return err
		}
		switch {
		case n.kind == fs.ModeDir:
			return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
		case len(n.now.data) > maxFile:
			return &fs.PathError{Op: "read", Path: path, Err: syscall.EFBIG}
		}
		data = append([]byte{}, n.now.data...)
		return nil
	})
	return data, err
}

// Rename implements poolfs.FS.
func (f *dir) Rename(from, to string) error { return f.rename(from, to, false) }

// Replace implements poolfs.FS.
func (f *dir) Replace(from, to string) error { return f.rename(from, to, true) }

func (f *dir) rename(from, to string, replace bool) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	source, old, err := f.find("rename", from)
	if err != nil {
		return err
	}
	dest, name, err := f.find("rename", to)
	if err != nil {
		return err
	}
	n, errno := child(source, old)
	if errno == 0 {
		errno = f.mayRename(n, source, dest, name, replace)
	}
	if errno != 0 {
		return link(f.path(from), f.path(to), errno)
	}
	if err := f.disk.step("rename", f.path(from)+" "+f.path(to), source.on); err != nil {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			return link(f.path(from), f.path(to), failed.Err)
		}
		return err
	}
	if dest.now.entries[name] != n {
		delete(source.now.entries, old)
		dest.now.entries[name] = n
	}
	if n.subvolume != 0 {
		n.on.whole = true
	}
	return nil
}

// mayRename is what rename(2) and renameat2(2) with RENAME_NOREPLACE say of moving n out of the directory source to a name
// in dest.
func (f *dir) mayRename(n, source, dest *node, name string, replace bool) syscall.Errno {
	if replace && n.kind == fs.ModeDir {
		return syscall.EISDIR
	}
	switch taken, errno := child(dest, name); {
	case errno == 0:
		if errno = mayReplace(taken, source, replace); errno != 0 {
			return errno
		}
	case errno != syscall.ENOENT:
		return errno
	}
	switch {
	case len(f.disk.mounts[n]) > 0:
		return syscall.EBUSY
	case holds(n, dest):
		return syscall.EINVAL
	case source.on.quota == poolfs.QuotaProject && dest.now.account != 0 && dest.now.account != n.now.account:
		return syscall.EXDEV // the destination hands its project on
	}
	return 0
}

func mayReplace(taken, source *node, replace bool) syscall.Errno {
	switch {
	case !replace:
		return syscall.EEXIST
	case holds(taken, source):
		return syscall.ENOTEMPTY
	case taken.kind == fs.ModeDir:
		return syscall.EISDIR
	}
	return 0
}

// holds tells whether inner is outer or lies below it.
func holds(outer, inner *node) bool {
	if outer == inner {
		return true
	}
	for _, n := range outer.now.entries {
		if holds(n, inner) {
			return true
		}
	}
	return false
}

// Remove implements poolfs.FS.
func (f *dir) Remove(name string) error {
	return f.within("remove", name, func(parent *node, last, path string) error {
		n, errno := child(parent, last)
		switch {
		case errno != 0:
		case len(n.now.entries) > 0:
			errno = syscall.ENOTEMPTY
		case len(f.disk.mounts[n]) > 0:
			errno = syscall.EBUSY
		}
		if errno != 0 {
			return &fs.PathError{Op: "remove", Path: path, Err: errno}
		}
		if err := f.disk.step("remove", path, parent.on); err != nil {
			return err
		}
		delete(parent.now.entries, last)
		return nil
	})
}

// RemoveTree implements poolfs.FS.
func (f *dir) RemoveTree(ctx context.Context, name string, pace func(context.Context) error) error {
	info, err := f.Stat(name)
	if name == "." {
		return &fs.PathError{Op: "remove", Path: f.path(name), Err: fs.ErrInvalid}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode.IsDir() {
		if err := f.empty(ctx, name, pace); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if pace != nil {
		if err := pace(ctx); err != nil {
			return err
		}
	}
	if err := f.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// empty removes what is in a directory; what stays is named, after the rest is gone.
func (f *dir) empty(ctx context.Context, name string, pace func(context.Context) error) error {
	entries, err := f.ReadDir(name)
	if err != nil {
		return err
	}
	var left error
	for _, e := range entries {
		err := f.RemoveTree(ctx, name+"/"+e.Name, pace)
		switch {
		case err == nil:
		case !stays(err):
			return err
		case left == nil:
			left = err
		}
	}
	return left
}

// stays tells whether an error concerns one name only, as package beneath has it.
func stays(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EPERM, syscall.EACCES, syscall.EBUSY, syscall.EXDEV, syscall.EROFS, syscall.ENOTEMPTY,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
