package poolfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// CreateFile makes a file that a crash leaves whole or not at all: temporary file, fsync, rename, fsync of the directory.
// It never replaces one (fs.ErrExist). On error no file of that name is left.
func CreateFile(disk FS, name string, data []byte) error {
	if err := PrepareFile(disk, name, data); err != nil {
		return err
	}
	if err := PlaceFile(disk, name); err != nil {
		return errors.Join(err, disk.Remove(temp(name)))
	}
	if err := disk.Sync(path.Dir(name)); err != nil {
		return errors.Join(fmt.Errorf("make %s durable: %w", name, err), disk.Remove(name))
	}
	return nil
}

// PrepareFile is the first part of CreateFile: the content is durable, under a temporary name.
func PrepareFile(disk FS, name string, data []byte) error {
	if err := ForgetFile(disk, name); err != nil { // what an interrupted write left
		return err
	}
	if err := disk.WriteFile(temp(name), data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// PlaceFile gives a prepared file its name, which is durable only after Sync of its directory. It never replaces one (fs.ErrExist).
func PlaceFile(disk FS, name string) error {
	if err := disk.Rename(temp(name), name); err != nil {
		return fmt.Errorf("put %s in place: %w", name, err)
	}
	return nil
}

// ForgetFile removes a prepared file that has not been placed; none there is no error.
func ForgetFile(disk FS, name string) error {
	if err := disk.Remove(temp(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was prepared of %s: %w", name, err)
	}
	return nil
}

// PreparedFor gives the name that a temporary one stands for; ok is false for all other names.
func PreparedFor(name string) (of string, ok bool) {
	hidden, ok := strings.CutSuffix(path.Base(name), ".tmp")
	if !ok || !strings.HasPrefix(hidden, ".") {
		return "", false
	}
	return path.Join(path.Dir(name), hidden[1:]), true
}

// ReplaceFile is CreateFile for a name that may exist: a crash leaves the old content or the new.
func ReplaceFile(disk FS, name string, data []byte) error {
	if err := PrepareFile(disk, name, data); err != nil {
		return err
	}
	if err := disk.Replace(temp(name), name); err != nil {
		return errors.Join(fmt.Errorf("put %s in place: %w", name, err), disk.Remove(temp(name)))
	}
	if err := disk.Sync(path.Dir(name)); err != nil {
		return fmt.Errorf("make %s durable: %w", name, err)
	}
	return nil
}

// temp is the temporary name of a file, which nothing else in its directory has: names of volumes never start with a dot.
func temp(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)+".tmp") }
