package disktest

import (
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// dir is an open directory.
type dir struct {
	disk   *Disk
	node   *node
	label  string
	closed bool
}

// within locks the disk and runs do on the directory of name.
func (f *dir) within(op, name string, do func(parent *node, last, path string) error) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	parent, last, err := f.find(op, name)
	if err != nil {
		return err
	}
	return do(parent, last, f.path(name))
}

// find is Disk.beneath from this directory. The disk is locked.
func (f *dir) find(op, name string) (*node, string, error) {
	if f.disk.faults.crashed {
		return nil, "", ErrCrashed
	}
	if !valid(name) || name == "." && changesNames(op) {
		return nil, "", &fs.PathError{Op: op, Path: f.path(name), Err: fs.ErrInvalid}
	}
	if f.closed {
		return nil, "", &fs.PathError{Op: op, Path: f.path(name), Err: syscall.EBADF}
	}
	parent, last, err := f.disk.beneath(f.node, name)
	if err != nil {
		return nil, "", &fs.PathError{Op: op, Path: f.path(name), Err: err}
	}
	return parent, last, nil
}

func changesNames(op string) bool {
	return slices.Contains([]string{"mkdir", "create", "rename", "link", "remove"}, op)
}

func (f *dir) path(name string) string {
	if name == "." {
		return f.label
	}
	return f.label + "/" + name
}

// opened is the inode of name for calls that open it: no link, no mount point.
func (f *dir) opened(op, path string, parent *node, last string) (*node, error) {
	n, errno := child(parent, last)
	switch {
	case errno != 0:
	case n.kind == fs.ModeSymlink:
		errno = syscall.ELOOP
	case last != "." && len(f.disk.mounts[n]) > 0:
		errno = syscall.EXDEV
	default:
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: path, Err: errno}
}

func (f *dir) openedDir(op, path string, parent *node, last string) (*node, error) {
	n, err := f.opened(op, path, parent, last)
	if err == nil && n.kind != fs.ModeDir {
		return nil, &fs.PathError{Op: op, Path: path, Err: syscall.ENOTDIR}
	}
	return n, err
}

// Mkdir implements disk.FS.
func (f *dir) Mkdir(name string, mode fs.FileMode) error {
	return f.within("mkdir", name, func(parent *node, last, path string) error {
		return f.disk.mkdir(parent, last, path, mode)
	})
}

func (d *Disk) mkdir(parent *node, last, path string, mode fs.FileMode) error {
	if err := free("mkdir", path, parent, last); err != nil {
		return err
	}
	if err := d.step("mkdir", path, parent.on); err != nil {
		return err
	}
	parent.now.entries[last] = d.node(parent.on, fs.ModeDir, mode&permissions)
	return nil
}

// permissions are the bits that chmod(2) sets.
const permissions = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// free returns why a name cannot be made.
func free(op, path string, parent *node, last string) error {
	_, errno := child(parent, last)
	switch {
	case errno == syscall.ENOENT && parent.now.immutable:
		errno = syscall.EPERM
	case errno == syscall.ENOENT:
		return nil
	case errno == 0:
		errno = syscall.EEXIST
	}
	return &fs.PathError{Op: op, Path: path, Err: errno}
}

// Own implements disk.FS. A crash between its two steps leaves the owner alone.
func (f *dir) Own(name string, uid, gid int, mode fs.FileMode) error {
	return f.within("chown", name, func(parent *node, last, path string) error {
		n, err := f.changed("chown", path, parent, last)
		if err != nil {
			return err
		}
		if n.kind == fs.ModeSymlink {
			return &fs.PathError{Op: "chown", Path: path, Err: syscall.ELOOP}
		}
		if err := f.disk.step("chown", path, n.on); err != nil {
			return err
		}
		if uid >= 0 { // chown(2): -1 leaves it as it is
			n.now.uid = uid
		}
		if gid >= 0 {
			n.now.gid = gid
		}
		n.now.mode &^= fs.ModeSetuid | fs.ModeSetgid
		if err := f.disk.step("chmod", path, n.on); err != nil {
			return err
		}
		n.now.mode = mode & permissions
		return nil
	})
}

// Unlock implements disk.FS.
func (f *dir) Unlock(name string) error {
	return f.within("chattr", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("chattr", path, parent, last)
		if err != nil || !n.now.immutable {
			return err
		}
		if err := f.disk.step("chattr", path, n.on); err != nil {
			return err
		}
		n.now.immutable = false
		return nil
	})
}

// changed is the inode of name for calls that look at the last component without opening it.
func (f *dir) changed(op, path string, parent *node, last string) (*node, error) {
	n, errno := child(parent, last)
	if errno != 0 {
		return nil, &fs.PathError{Op: op, Path: path, Err: errno}
	}
	if last == "." {
		return n, nil
	}
	return f.disk.seen(n), nil
}

// Stat implements disk.FS.
func (f *dir) Stat(name string) (disk.Info, error) {
	var info disk.Info
	err := f.within("stat", name, func(parent *node, last, path string) error {
		n, err := f.changed("stat", path, parent, last)
		if err != nil {
			return err
		}
		info = disk.Info{Dev: n.on.dev, Ino: n.ino, Mode: n.kind | n.now.mode, UID: n.now.uid, GID: n.now.gid}
		return nil
	})
	return info, err
}

// ReadDir implements disk.FS.
func (f *dir) ReadDir(name string) ([]disk.Entry, error) {
	var entries []disk.Entry
	err := f.within("readdir", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("readdir", path, parent, last)
		if err != nil {
			return err
		}
		for name, child := range n.now.entries { // in no particular order, as promised
			entries = append(entries, disk.Entry{Name: name, Dir: child.kind == fs.ModeDir})
		}
		return nil
	})
	return entries, err
}

// Sync implements disk.FS.
func (f *dir) Sync(name string) error {
	return f.within("sync", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("sync", path, parent, last)
		if err != nil {
			return err
		}
		return f.disk.sync(n, path)
	})
}

func (d *Disk) sync(n *node, path string) error {
	if err := d.step("sync", path, n.on); err != nil {
		return err
	}
	n.disk = n.now.clone()
	return nil
}

// Space implements disk.FS.
func (f *dir) Space() (disk.Space, error) {
	var space disk.Space
	err := f.within("statfs", ".", func(*node, string, string) error {
		space = f.node.on.space
		space.ReadOnly = f.node.on.readOnly
		return nil
	})
	return space, err
}

// Open implements disk.FS; there is no File.
func (f *dir) Open(name string) (disk.Handle, error) {
	var handle disk.Handle
	err := f.within("open", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("open", path, parent, last)
		if err != nil {
			return err
		}
		handle = disk.Handle{Dev: n.on.dev, Ino: n.ino}
		return nil
	})
	return handle, err
}

// Close implements disk.FS.
func (f *dir) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.node.on.opened--
	}
	return nil
}

// link is the error of a rename.
func link(from, to string, err error) error {
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
