package beneath

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// inRoot resolves a path as a process whose root directory is the given one would: links are followed, absolute ones
// and ".." stay inside.
const inRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

// OpenInRoot opens the directory at the absolute, clean path p as seen from root.
func OpenInRoot(root, p string) (*Dir, error) {
	top, err := Open(root)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	return top.rooted(p)
}

// MakeInRoot is OpenInRoot after making whatever is missing of p, with the given permissions and durably. What was
// made stays when a later step fails, but never a directory whose own name may not be on the disk.
func MakeInRoot(root, p string, mode fs.FileMode) (*Dir, error) {
	top, err := Open(root)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	if !absolute(p) {
		return nil, &fs.PathError{Op: "mkdir", Path: printable(p), Err: fs.ErrInvalid}
	}
	dir, err := top.rooted("/")
	if err != nil {
		return nil, err
	}
	prefix := ""
	for element := range strings.FieldsFuncSeq(p, func(r rune) bool { return r == '/' }) {
		prefix += "/" + element
		if dir, err = top.step(dir, prefix, mode); err != nil {
			return nil, err
		}
	}
	return dir, nil
}

// step opens prefix, or makes it in dir, the directory above, which it closes.
func (d *Dir) step(dir *Dir, prefix string, mode fs.FileMode) (*Dir, error) {
	defer dir.Close()
	next, err := d.rooted(prefix)
	if !errors.Is(err, fs.ErrNotExist) {
		return next, err
	}
	name := path.Base(prefix)
	if err := dir.Mkdir(name, mode); errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkdir", Path: prefix, Err: danglingError{}}
	} else if err != nil {
		return nil, err
	}
	if err := dir.Sync("."); err != nil {
		return nil, errors.Join(err, dir.Remove(name))
	}
	return d.rooted(prefix)
}

// rooted opens p with d as the root directory.
func (d *Dir) rooted(p string) (*Dir, error) {
	if !absolute(p) {
		return nil, &fs.PathError{Op: "open", Path: printable(p), Err: fs.ErrInvalid}
	}
	fd, err := openat2(d.fd, p, unix.O_PATH|unix.O_DIRECTORY, inRoot)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: printable(p), Err: err}
	}
	return &Dir{name: p, fd: fd, resolve: within}, nil
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && strings.IndexByte(p, 0) < 0
}

// danglingError is ENOENT with the reason.
type danglingError struct{}

func (danglingError) Error() string { return "a symbolic link on the way leads to nothing" }
func (danglingError) Unwrap() error { return unix.ENOENT }
