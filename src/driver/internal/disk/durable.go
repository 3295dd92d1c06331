package disk

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// CreateFile makes a file that a crash leaves whole or not at all: temporary file, fsync, rename, fsync of the
// directory. It never replaces one (fs.ErrExist). On error no file of that name is left.
func CreateFile(d FS, name string, data []byte) error {
	if err := PrepareFile(d, name, data); err != nil {
		return err
	}
	if err := PlaceFile(d, name); err != nil {
		return errors.Join(err, d.Remove(Prepared(name)))
	}
	if err := d.Sync(path.Dir(name)); err != nil {
		return errors.Join(err, d.Remove(name))
	}
	return nil
}

// PrepareFile is the first part of CreateFile: the content is durable, under a temporary name.
func PrepareFile(d FS, name string, data []byte) error {
	if err := ForgetFile(d, name); err != nil { // what an interrupted write left
		return err
	}
	return d.WriteFile(Prepared(name), data, 0o600)
}

// PlaceFile gives a prepared file its name, which is durable only after Sync of its directory. It never replaces one
// (fs.ErrExist).
func PlaceFile(d FS, name string) error { return d.Rename(Prepared(name), name) }

// ForgetFile removes a prepared file that has not been placed; none there is no error.
func ForgetFile(d FS, name string) error {
	if err := d.Remove(Prepared(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReplaceFile is CreateFile for a name that may exist: a crash leaves the old content or the new.
func ReplaceFile(d FS, name string, data []byte) error {
	if err := PrepareFile(d, name, data); err != nil {
		return err
	}
	if err := d.Replace(Prepared(name), name); err != nil {
		return errors.Join(err, d.Remove(Prepared(name)))
	}
	return d.Sync(path.Dir(name))
}

// Prepared is the temporary name of a file, which nothing else in its directory has: names of volumes never start with
// a dot.
func Prepared(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)+".tmp") }

// PreparedFor gives the name that a temporary one stands for; ok is false for all other names.
func PreparedFor(name string) (of string, ok bool) {
	hidden, ok := strings.CutSuffix(path.Base(name), ".tmp")
	if !ok || !strings.HasPrefix(hidden, ".") {
		return "", false
	}
	return path.Join(path.Dir(name), hidden[1:]), true
}

// SyncAll makes the entries of directories durable, in this order.
func SyncAll(d FS, dirs ...string) error {
	for _, dir := range dirs {
		if err := d.Sync(dir); err != nil {
			return err
		}
	}
	return nil
}

// Journaled reports whether the filesystem writes changes of names in the order in which they are made, whoever syncs
// what, and whether the sync of a directory writes all changes that came before its own. XFS does so, and ext4 with a
// journal.
func Journaled(d Opener) bool {
	top, err := d.Open(".")
	if err != nil {
		return false
	}
	defer func() { _ = top.Close() }() // nothing was written through it
	var st unix.Statfs_t
	if top.File == nil || unix.Fstatfs(int(top.File.Fd()), &st) != nil {
		return false
	}
	switch st.Type {
	case unix.XFS_SUPER_MAGIC:
		return true
	case unix.EXT4_SUPER_MAGIC: // and ext2, which has no journal
		return unix.IoctlSetPointerInt(int(top.File.Fd()), checkpointExt4, checkpointDryRun) == nil
	}
	return false
}

// EXT4_IOC_CHECKPOINT (Linux 5.14, uapi/linux/ext4.h) fails with ENODEV where there is no journal; by its flag it does
// nothing else.
const (
	checkpointExt4   = 0x4004662b
	checkpointDryRun = 4
)
