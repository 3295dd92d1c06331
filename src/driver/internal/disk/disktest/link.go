package disktest

import (
	"io/fs"
	"syscall"
)

// Link implements disk.FS.
func (f *dir) Link(from, to string) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	source, old, err := f.find("link", from)
	if err != nil {
		return err
	}
	dest, name, err := f.find("link", to)
	if err != nil {
		return err
	}
	n, errno := child(source, old)
	if errno == 0 && n.kind == fs.ModeDir {
		errno = syscall.EPERM
	}
	if errno == 0 {
		err = free("link", f.path(to), dest, name)
	}
	if errno != 0 {
		err = link(f.path(from), f.path(to), errno)
	}
	if err != nil {
		return err
	}
	if err := f.disk.step("link", f.path(from)+" "+f.path(to), source.on); err != nil {
		return err
	}
	dest.now.entries[name] = n
	return nil
}
