package beneath

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// Entry is one name in a directory.
type Entry struct {
	Name string
	Dir  bool // a directory, not a link to one
}

// portion is the size of a getdents64(2) buffer in bytes, as large as glibc's.
const portion = 32 << 10

// ReadDir lists a directory, in no particular order.
func (d *Dir) ReadDir(name string) ([]Entry, error) {
	fd, err := d.open("readdir", name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var entries []Entry
	buf := make([]byte, portion)
	for {
		more, err := list(fd, buf)
		if err != nil {
			return nil, d.fail("readdir", name, err)
		}
		if len(more) == 0 {
			return entries, nil
		}
		entries = append(entries, more...)
	}
}

// list reads on in an open directory; no entries mean its end. (os.File.ReadDir would look names of unknown type up
// by path.)
func list(fd int, buf []byte) ([]Entry, error) {
	for {
		var n int
		err := retry(func() (err error) { n, err = unix.Getdents(fd, buf); return err })
		if errors.Is(err, unix.ENOENT) { // the directory itself was removed
			return nil, nil
		}
		if err != nil || n == 0 {
			return nil, err
		}
		entries, err := parse(fd, buf[:n])
		if err != nil || len(entries) > 0 {
			return entries, err
		}
	}
}

// Offsets in struct linux_dirent64 (getdents64(2)): d_ino, d_off, d_reclen, d_type, d_name.
const (
	direntReclen = 16
	direntType   = 18
	direntName   = 19
)

func parse(fd int, buf []byte) ([]Entry, error) {
	var entries []Entry
	for len(buf) > direntName {
		size := binary.NativeEndian.Uint16(buf[direntReclen:])
		record := buf[:size]
		buf = buf[size:]
		raw, _, _ := bytes.Cut(record[direntName:], []byte{0})
		name := string(raw)
		if name == "." || name == ".." {
			continue
		}
		kind := record[direntType]
		if kind == unix.DT_UNKNOWN { // XFS made without ftype, some network filesystems
			var st unix.Stat_t
			err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				kind = unix.DT_DIR
			}
		}
		entries = append(entries, Entry{Name: name, Dir: kind == unix.DT_DIR})
	}
	return entries, nil
}
