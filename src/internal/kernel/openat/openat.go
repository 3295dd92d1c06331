// Package openat opens names in open directories, without following links out of them, and lists those directories.
// Errors are *fs.PathError around a syscall.Errno.
package openat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// Beneath resolves a name below a directory, also where other filesystems are mounted, through no link. SameMount
// refuses mount points too, but not btrfs subvolumes, which are no mounts.
const (
	Beneath   = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	SameMount = Beneath | unix.RESOLVE_NO_XDEV
)

// maxAgain bounds the retries of openat2(2): EAGAIN is a race of ".." with a rename or a mount anywhere on the host.
const maxAgain = 1000

// ErrKind is a name that Plain does not open.
var ErrKind = fmt.Errorf("%w: neither a regular file nor a directory", unix.EINVAL)

// Open opens a name below a directory, for reading where flags say nothing else.
func Open(dir *os.File, name string, flags int, resolve uint64) (*os.File, error) {
	if !Valid(name) {
		return nil, Failed("open", Path(dir, name), fs.ErrInvalid)
	}
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), Path(dir, name)), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && tries < maxAgain:
		default:
			return nil, Failed("open", Path(dir, name), err)
		}
	}
}

// Valid reports whether a name is "." or a clean relative path without "..", of whatever bytes.
func Valid(name string) bool {
	return fs.ValidPath(strings.ToValidUTF8(name, "x")) && strings.IndexByte(name, 0) < 0
}

// Plain opens a directory or a regular file for reading. A link is ELOOP, a mount point EXDEV, and whatever else there
// is ErrKind: to open it can have effects.
func Plain(dir *os.File, name string) (f *os.File, isDir bool, err error) {
	found, err := Open(dir, name, unix.O_PATH, SameMount)
	if err != nil {
		return nil, false, err
	}
	defer found.Close()
	info, err := found.Stat()
	if err != nil {
		return nil, false, err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, false, Failed("open", found.Name(), ErrKind)
	}
	f, err = Reopen(found, unix.O_RDONLY)
	return f, info.IsDir(), err
}

// Reopen opens what an open file is, which may be an O_PATH one, once more with other flags. To open what is neither a
// regular file nor a directory can have effects.
func Reopen(f *os.File, flags int) (*os.File, error) {
	fd, at := 0, Self(f)
	err := Retry(func() (err error) { fd, err = unix.Open(at, flags|unix.O_CLOEXEC, 0); return err })
	runtime.KeepAlive(f)
	if err != nil {
		return nil, Failed("open", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Self is a path that leads system calls which follow links to an open file itself, also to an O_PATH one of a link.
func Self(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// Lookup finds a name, whatever it is, also a link, and opens it as O_PATH. A mount point is EXDEV.
func Lookup(dir *os.File, name string) (*os.File, *unix.Stat_t, error) {
	f, err := Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, SameMount)
	if err != nil {
		return nil, nil, err
	}
	st, err := Stat(f)
	if err != nil {
		_ = f.Close() // it was an O_PATH one
	}
	return f, st, err
}

// Stat is fstat(2).
func Stat(f *os.File) (*unix.Stat_t, error) {
	st := &unix.Stat_t{}
	return st, Failed("stat", f.Name(), unix.Fstat(int(f.Fd()), st))
}

// Remove removes a name, if it is there; a directory is EISDIR. A file with other names stays immutable or append-only.
func Remove(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EPERM) {
		f, _, failure := Plain(dir, name)
		if failure != nil {
			return Failed("remove", Path(dir, name), err)
		}
		defer f.Close()
		flags, failure := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if had, _ := Unlock(f); had && failure == nil {
			err = unix.Unlinkat(int(dir.Fd()), name, 0)
			err = errors.Join(err, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return Failed("remove", Path(dir, name), err)
}

// Retry repeats a system call that a signal interrupted: network filesystems and FUSE do return EINTR.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Failed names what something could not be done with, if err does not.
func Failed(op, path string, err error) error {
	_, one := errors.AsType[*fs.PathError](err)
	_, two := errors.AsType[*os.LinkError](err)
	if err == nil || one || two {
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// FailedAt is Failed for a name in a directory.
func FailedAt(op string, dir *os.File, name string, err error) error {
	return Failed(op, Path(dir, name), err)
}

// IsGone reports whether an error of Open says that a name is none any more, or not of a directory on the same mount.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.EXDEV)
}

// maxShown bounds a path in a message, in bytes.
const maxShown = 1024

// Path is what a file is called in messages. A long path is shortened in the middle, and a name with bytes that could
// garble a log line is quoted: pods choose the names inside volumes.
func Path(dir *os.File, name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	full := path.Join(dir.Name(), name)
	if len(full) > maxShown {
		full = strings.ToValidUTF8(full[:maxShown/2], "") + "…" + strings.ToValidUTF8(full[len(full)-maxShown/2:], "")
	}
	return full
}

// Fixed are the flags that keep root from renaming or removing a file: FS_IMMUTABLE_FL, FS_APPEND_FL
// (include/uapi/linux/fs.h).
const Fixed = 0x10 | 0x20

// Unlock clears these flags of an open file (chattr -i -a) and reports whether it had any.
func Unlock(f *os.File) (bool, error) {
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || err == nil && flags&Fixed == 0 {
		return false, nil
	}
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^Fixed))
	}
	return err == nil, Failed("chattr -i -a", f.Name(), err)
}

// portion is the size of a getdents64(2) buffer in bytes, as large as glibc's.
const portion = 32 << 10

// Listing reads an open directory.
type Listing struct {
	Dir     *os.File
	entries []Entry // read, not yet taken
}

// Entry is one name in a directory.
type Entry struct {
	Name  string
	IsDir bool  // a directory, not a link to one
	Next  int64 // where to read on behind it (os.File.Seek)
}

// Take returns the next entry, nil at the end. (os.File.ReadDir would look up names of unknown type by their path.)
func (l *Listing) Take() (*Entry, error) {
	for len(l.entries) == 0 {
		n, buf := 0, make([]byte, portion)
		err := Retry(func() (err error) { n, err = unix.Getdents(int(l.Dir.Fd()), buf); return err })
		if errors.Is(err, unix.ENOENT) || err == nil && n == 0 { // ENOENT: the directory itself was removed
			return nil, nil
		}
		if err != nil {
			return nil, Failed("readdir", l.Dir.Name(), err)
		}
		l.entries = parse(l.Dir, buf[:n])
	}
	e := &l.entries[0]
	l.entries = l.entries[1:]
	return e, nil
}

// Offsets in struct linux_dirent64 (getdents64(2)): d_ino, d_off, d_reclen, d_type, d_name.
const (
	direntNext   = 8
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

func parse(dir *os.File, buf []byte) []Entry {
	var entries []Entry
	for len(buf) > direntName {
		record := buf[:binary.NativeEndian.Uint16(buf[direntLength:])]
		buf = buf[len(record):]
		raw, _, _ := bytes.Cut(record[direntName:], []byte{0})
		name := string(raw)
		if name == "." || name == ".." {
			continue
		}
		kind := record[direntType]
		var st unix.Stat_t
		// XFS made without ftype and some network filesystems say nothing. A name that is gone may count as a file.
		if kind == unix.DT_UNKNOWN && unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil &&
			st.Mode&unix.S_IFMT == unix.S_IFDIR {
			kind = unix.DT_DIR
		}
		next := int64(binary.NativeEndian.Uint64(record[direntNext:]))
		entries = append(entries, Entry{Name: name, IsDir: kind == unix.DT_DIR, Next: next})
	}
	return entries
}
