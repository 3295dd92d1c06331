// Package links remembers in a directory which files of a copy have several names, to make the other ones. The
// directory has a name for each such file: its key, in hex.
package links

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// Dir is such a directory, which is made when it is needed. A key of 0 is that of no file.
type Dir struct {
	Root *os.File // the directory that has it
	Name string   // its name there
	dir  *os.File
}

// Close closes it, if it was opened.
func (d *Dir) Close() error {
	if d.dir == nil {
		return nil
	}
	return d.dir.Close()
}

func (d *Dir) open() (err error) {
	if d.dir != nil {
		return nil
	}
	if err = unix.Mkdirat(int(d.Root.Fd()), d.Name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return openat.Failed("mkdir", openat.Path(d.Root, d.Name), err)
	}
	d.dir, err = openat.Open(d.Root, d.Name, unix.O_DIRECTORY, openat.SameMount)
	return err
}

func nameOf(key uint64) string { return strconv.FormatUint(key, 16) }

// Has reports whether a file is the one that has the key.
func (d *Dir) Has(key uint64, st *unix.Stat_t) (bool, error) {
	if key == 0 {
		return false, nil
	}
	if err := d.open(); err != nil {
		return false, err
	}
	f, known, err := openat.Lookup(d.dir, nameOf(key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return known.Ino == st.Ino, f.Close()
}

// Link makes a name in a directory for the file that has the key, unless there is none, or it can have no more names.
// An immutable or append-only file loses these flags.
func (d *Dir) Link(key uint64, to *os.File, name string) (bool, error) {
	if key == 0 {
		return false, nil
	}
	if err := d.open(); err != nil {
		return false, err
	}
	link := func() error { return unix.Linkat(int(d.dir.Fd()), nameOf(key), int(to.Fd()), name, 0) }
	err := link()
	if errors.Is(err, unix.EPERM) {
		f, _, failure := openat.Plain(d.dir, nameOf(key))
		if failure == nil {
			_, failure = openat.Unlock(f)
			err = errors.Join(failure, f.Close(), link())
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EMLINK) {
		return false, nil
	}
	return err == nil, openat.Failed("link", openat.Path(to, name), err)
}

// Add gives the key to a file, which has a name in a directory; another one that had it loses it.
func (d *Dir) Add(key uint64, from *os.File, name string, st *unix.Stat_t) error {
	has, err := d.Has(key, st)
	if err != nil || has || key == 0 {
		return err
	}
	if err = openat.Remove(d.dir, nameOf(key)); err == nil {
		err = unix.Linkat(int(from.Fd()), name, int(d.dir.Fd()), nameOf(key), 0)
	}
	return openat.Failed("link", openat.Path(from, name), err)
}

// Remove removes the directory, or a part of it: as many files as a number of steps, less when ctx ends. It reports
// whether it is gone. The files keep their flags.
func (d *Dir) Remove(ctx context.Context, steps int) (done bool, err error) {
	dir, err := openat.Open(d.Root, d.Name, unix.O_DIRECTORY, openat.SameMount)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	listing := openat.Listing{Dir: dir}
	for range steps {
		e, err := listing.Take()
		if err != nil {
			return false, err
		}
		if e == nil {
			err = unix.Unlinkat(int(d.Root.Fd()), d.Name, unix.AT_REMOVEDIR)
			if errors.Is(err, unix.ENOTEMPTY) { // some filesystems skip entries in a listing when others are removed
				return false, nil
			}
			return err == nil, openat.Failed("rmdir", dir.Name(), err)
		}
		if err = openat.Remove(dir, e.Name); err != nil || ctx.Err() != nil {
			return false, err
		}
	}
	return false, nil
}
