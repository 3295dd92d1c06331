package disktest

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a lookup follows, as in path_resolution(7).
const maxLinks = 40

// lookup finds the directory at an absolute path, following links. What is mounted on its last component is not yet
// looked at. d.mu is held.
func (d *Disk) lookup(p string) (*node, error) {
	if !absolute(p) {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrInvalid}
	}
	n, errno := d.walk(p, 0)
	if errno == 0 && n.kind != fs.ModeDir {
		errno = syscall.ENOTDIR
	}
	if errno != 0 {
		return nil, &fs.PathError{Op: "open", Path: p, Err: errno}
	}
	return n, nil
}

// walk follows links textually: a relative target is put behind the link's directory.
func (d *Disk) walk(p string, links int) (*node, syscall.Errno) {
	if links > maxLinks {
		return nil, syscall.ELOOP
	}
	n := d.root.root
	all := prefixes(p)
	for i, prefix := range all {
		at := d.seen(n)
		if at.kind != fs.ModeDir {
			return nil, syscall.ENOTDIR
		}
		next, ok := at.now.entries[base(prefix)]
		if !ok {
			return nil, syscall.ENOENT
		}
		if next.kind == fs.ModeSymlink {
			target := next.target
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(prefix), target)
			}
			rest := strings.TrimPrefix(all[len(all)-1], all[i])
			return d.walk(path.Join(target, rest), links+1)
		}
		n = next
	}
	return n, 0
}

// beneath finds the directory of name below dir, as openat2(2) with RESOLVE_BENEATH, NO_SYMLINKS and NO_XDEV
// does, and name's last component. For "." that is dir and ".".
func (d *Disk) beneath(dir *node, name string) (parent *node, last string, err error) {
	if !valid(name) {
		return nil, "", fs.ErrInvalid
	}
	elements := strings.Split(name, "/")
	last = elements[len(elements)-1]
	for _, element := range elements[:len(elements)-1] {
		next, errno := child(dir, element)
		switch {
		case errno != 0:
			return nil, "", errno
		case next.kind == fs.ModeSymlink:
			return nil, "", syscall.ELOOP
		case next.kind != fs.ModeDir:
			return nil, "", syscall.ENOTDIR
		case len(d.mounts[next]) > 0:
			return nil, "", syscall.EXDEV
		}
		dir = next
	}
	return dir, last, nil
}

// child finds a name in a directory, itself for ".".
func child(dir *node, name string) (*node, syscall.Errno) {
	if name == "." {
		return dir, 0
	}
	if len(name) > 255 {
		return nil, syscall.ENAMETOOLONG
	}
	n, ok := dir.now.entries[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	return n, 0
}

// valid reports whether a name is one that disk.FS takes.
func valid(name string) bool {
	return fs.ValidPath(strings.ToValidUTF8(name, "x")) && !strings.Contains(name, "\x00")
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.Contains(p, "\x00")
}

// prefixes of /a/b are /a and /a/b.
func prefixes(p string) []string {
	var all []string
	prefix := ""
	for element := range strings.FieldsFuncSeq(p, func(r rune) bool { return r == '/' }) {
		prefix += "/" + element
		all = append(all, prefix)
	}
	return all
}

func base(p string) string { return path.Base(p) }
