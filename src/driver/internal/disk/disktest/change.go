package disktest

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/removetree"
)

// WriteFile implements disk.FS. A crash between its three steps leaves an empty or a partly written file, unless
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

// ReadFile implements disk.FS.
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
		case len(n.now.data) > disk.MaxFile:
			return &fs.PathError{Op: "read", Path: path, Err: syscall.EFBIG}
		}
		data = append([]byte{}, n.now.data...)
		return nil
	})
	return data, err
}

// Rename implements disk.FS.
func (f *dir) Rename(from, to string) error { return f.rename(from, to, false) }

// Replace implements disk.FS.
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
	return nil
}

// mayRename is what rename(2) and renameat2(2) with RENAME_NOREPLACE say of moving n out of the directory source
// to a name in dest.
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
	case contains(n, dest):
		return syscall.EINVAL
	case n.now.immutable || source.now.immutable || dest.now.immutable:
		return syscall.EPERM
	}
	return 0
}

func mayReplace(taken, source *node, replace bool) syscall.Errno {
	switch {
	case !replace:
		return syscall.EEXIST
	case contains(taken, source):
		return syscall.ENOTEMPTY
	case taken.kind == fs.ModeDir:
		return syscall.EISDIR
	}
	return 0
}

// contains reports whether inner is outer or lies below it.
func contains(outer, inner *node) bool {
	if outer == inner {
		return true
	}
	for _, n := range outer.now.entries {
		if contains(n, inner) {
			return true
		}
	}
	return false
}

// Remove implements disk.FS.
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
		if errno == 0 && (n.now.immutable || parent.now.immutable) {
			errno = syscall.EPERM
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

// RemoveTree implements disk.FS. It asks step before each removal, and moves nothing: what is deepest goes first.
func (f *dir) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	if name == "." {
		return &fs.PathError{Op: "remove", Path: f.path(name), Err: fs.ErrInvalid}
	}
	r := remover{dir: f, ctx: ctx, step: step}
	info, err := f.Stat(name)
	if err == nil {
		err = r.remove(name, info.Mode.IsDir())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.leftovers(path.Dir(name)); err != nil {
		return err
	}
	return r.first
}

// remover is one RemoveTree.
type remover struct {
	*dir
	ctx   context.Context
	step  func(context.Context) error
	first error // why the first thing that is left could not be removed
}

// leftovers removes what a real disk's RemoveTree may have moved up.
func (r *remover) leftovers(dir string) error {
	entries, err := r.ReadDir(dir)
	for _, e := range entries {
		if err == nil && strings.HasPrefix(e.Name, removetree.Prefix) {
			err = r.remove(path.Join(dir, e.Name), e.Dir)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// remove removes a name after what is in it. Its error ends the work.
func (r *remover) remove(name string, isDir bool) error {
	if isDir {
		if err := r.empty(name); err != nil {
			return err
		}
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.step != nil {
		if err := r.step(r.ctx); err != nil {
			return err
		}
	}
	return r.done(r.Remove(name))
}

// empty removes what is in a directory. One with a mount on it cannot be opened, and stays.
func (r *remover) empty(name string) error {
	entries, err := r.ReadDir(name)
	if err != nil {
		return r.done(err)
	}
	if err := r.Unlock(name); err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.remove(name+"/"+e.Name, e.Dir); err != nil {
			return err
		}
	}
	return nil
}

// done takes note of what stays, and returns other errors.
func (r *remover) done(err error) error {
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case !stays(err):
		return err
	case r.first == nil:
		r.first = err
	}
	return nil
}

// stays reports whether an error concerns one name only.
func stays(err error) bool {
	return slices.ContainsFunc([]error{syscall.EBUSY, syscall.ENOTEMPTY, syscall.EROFS, syscall.EXDEV},
		func(errno error) bool { return errors.Is(err, errno) })
}
