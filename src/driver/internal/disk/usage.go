package disk

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

const (
	// blockSize is the unit of st_blocks (stat(2)), in bytes.
	blockSize = 512
	// maxSeen is how many files with several names are remembered: 20 MiB of memory at most.
	maxSeen = 1 << 18
)

// Usage is what a directory tree takes of a disk, as far as Measure has come. The zero value begins one.
type Usage struct {
	// Files are all inodes, of directories too, and Bytes what is allocated to them. A file with several names in the
	// tree counts once.
	Files, Bytes int64

	begun  bool
	cursor Cursor
	seen   map[[2]uint64]struct{} // by device and inode: files with several names
}

// Measure counts a directory of a real disk and everything in it. No link is followed, no mount entered, and nothing
// opened but directories. What vanishes meanwhile is passed over. step is called before each file; its error, like that
// of ctx, ends the measurement, and a later one goes on from there.
func (u *Usage) Measure(ctx context.Context, d FS, name string, step func(context.Context) error) error {
	if !u.begun {
		top, err := d.Open(name)
		if err != nil {
			return err
		}
		if top.File == nil {
			return openat.Failed("measure", name, errors.ErrUnsupported)
		}
		defer top.File.Close()
		if err := u.add(top.File); err != nil {
			return err
		}
		u.begun = true
	}
	u.cursor.open = look
	return walk(ctx, d, name, &u.cursor, func(f *os.File, _ bool) error {
		if err := step(ctx); err != nil {
			return err
		}
		return u.add(f)
	})
}

// look opens a directory for reading, and finds everything else without opening it.
func look(dir *os.File, name string) (f *os.File, isDir bool, err error) {
	found, st, err := openat.Lookup(dir, name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return found, false, err
	}
	defer found.Close()
	f, err = openat.Reopen(found, unix.O_RDONLY)
	return f, true, err
}

func (u *Usage) add(f *os.File) error {
	st, err := openat.Stat(f)
	if err != nil {
		return err
	}
	bytes := st.Blocks * blockSize
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		file := [2]uint64{st.Dev, st.Ino}
		if _, counted := u.seen[file]; counted {
			return nil
		}
		if u.seen == nil {
			u.seen = map[[2]uint64]struct{}{}
		}
		if len(u.seen) < maxSeen {
			u.seen[file] = struct{}{}
		} else {
			bytes /= int64(st.Nlink) // its names, if all are in the tree, add up to it
		}
	}
	u.Files++
	u.Bytes += bytes
	return nil
}
