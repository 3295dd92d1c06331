// Package beneath works on files below an open directory in a way that a hostile tree cannot turn elsewhere: names
// are resolved with openat2(2), never through a symbolic link and never onto another filesystem, and the last
// component is only ever touched by the *at system calls that do not follow it.
package beneath

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// within is how every name below a Dir is resolved. NO_XDEV refuses mount points, not btrfs subvolumes, which are no
// mounts.
const within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// maxAgain bounds the retries of openat2, which answers EAGAIN when a rename or a mount anywhere on the host
// races with a "..".
const maxAgain = 1000

// Dir is an open directory. Names given to its methods are slash-separated and relative to it; "." is the directory
// itself. A name that is empty, absolute, holds a NUL or an element that is empty, "." or ".." is refused
// with fs.ErrInvalid. Errors are *fs.PathError or *os.LinkError around a syscall.Errno. Methods may be called
// concurrently, except for Close.
type Dir struct {
	name    string // for messages
	fd      int
	resolve uint64 // how names are resolved
}

// Open opens the directory at path, following links.
func Open(path string) (*Dir, error) { return open(path, within) }

// OpenAcross is Open for a directory whose names may lead onto other filesystems that are mounted below it.
func OpenAcross(path string) (*Dir, error) { return open(path, within&^unix.RESOLVE_NO_XDEV) }

func open(path string, resolve uint64) (*Dir, error) {
	fd, err := openat2(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Dir{name: path, fd: fd, resolve: resolve}, nil
}

// Sub opens a directory below d, even where another filesystem is mounted on its last component; a link there is
// ELOOP.
func (d *Dir) Sub(name string) (*Dir, error) {
	p, err := d.parent("open", name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	fd, err := openat2(p.fd, p.last, unix.O_PATH|unix.O_DIRECTORY, within&^unix.RESOLVE_NO_XDEV)
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	return &Dir{name: d.path(name), fd: fd, resolve: d.resolve}, nil
}

// Close closes the descriptor; a second Close does nothing.
func (d *Dir) Close() error {
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	return unix.Close(fd)
}

// Name is the path that the directory was opened by, for messages.
func (d *Dir) Name() string { return d.name }

// place is the last component of a name, and an open descriptor of the directory that holds it.
type place struct {
	fd    int
	last  string
	owned bool // fd is not the Dir's own
}

func (p place) close() {
	if p.owned {
		_ = unix.Close(p.fd) // opened for reading or O_PATH: nothing can be lost
	}
}

// parent opens the directory that holds name. For "." that is the directory itself.
func (d *Dir) parent(op, name string) (place, error) {
	if !valid(name) {
		return place{}, d.fail(op, name, fs.ErrInvalid)
	}
	dir, last := path.Split(name)
	if dir == "" {
		return place{fd: d.fd, last: last}, nil
	}
	fd, err := openat2(d.fd, strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY, d.resolve)
	if err != nil {
		return place{}, d.fail(op, name, err)
	}
	return place{fd: fd, last: last, owned: true}, nil
}

// entry is parent for operations that make, move or remove names, where "." is invalid.
func (d *Dir) entry(op, name string) (place, error) {
	if name == "." {
		return place{}, d.fail(op, name, fs.ErrInvalid)
	}
	return d.parent(op, name)
}

// open opens name itself, which must not be a link.
func (d *Dir) open(op, name string, flags int) (int, error) {
	if !valid(name) {
		return -1, d.fail(op, name, fs.ErrInvalid)
	}
	fd, err := openat2(d.fd, name, flags, d.resolve)
	if err != nil {
		return -1, d.fail(op, name, err)
	}
	return fd, nil
}

func (d *Dir) fail(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: printable(d.path(name)), Err: err}
}

func (d *Dir) path(name string) string {
	if name == "." {
		return d.name
	}
	return strings.TrimSuffix(d.name, "/") + "/" + name
}

func valid(name string) bool {
	if name == "." {
		return true
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element == "." || element == ".." {
			return false
		}
	}
	return strings.IndexByte(name, 0) < 0
}

// printable quotes a path whose bytes could garble a log line; pods choose the names inside volumes.
func printable(path string) string {
	for _, r := range path {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return strconv.Quote(path)
		}
	}
	return path
}

// openat2 opens with O_CLOEXEC and tries again where the kernel asks for it.
func openat2(dir int, name string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, name, &how)
		again := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) && tries < maxAgain
		if !again {
			return fd, err
		}
	}
}

// retry repeats a system call that a signal interrupted (network filesystems and FUSE do return EINTR).
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
