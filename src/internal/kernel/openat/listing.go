package openat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

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
