package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// maxDepth is how deep Walk goes: it has every directory of the way open.
const maxDepth = 1024

// Cursor is how far a Walk came. The zero value begins one. It has no descriptor open between walks.
type Cursor struct {
	way     []level // empty before the beginning
	visited int64
	done    bool
	open    func(dir *os.File, name string) (f *os.File, isDir bool, err error)
}

// level is an open directory on the way down a tree.
type level struct {
	openat.Listing
	name string // in the directory above
	next int64  // where a later Walk reads on
}

// Visited is how many files and directories were visited so far.
func (c *Cursor) Visited() int64 { return c.visited }

// Walk calls visit with every directory and every regular file below a directory of a real disk, not with that
// directory itself. Each is open for reading until visit returns; a directory comes before what is in it, and visit
// does not list it. Links are not followed and mounts not entered; other files are not opened, which can have effects.
// What vanishes meanwhile is passed over. An error of visit, like that of ctx, ends the walk; a later Walk with the
// same cursor goes on with that very file. A tree deeper than 1,024 directories is an error.
func Walk(ctx context.Context, d FS, name string, c *Cursor, visit func(f *os.File, isDir bool) error) error {
	c.open = openat.Plain
	return walk(ctx, d, name, c, visit)
}

func walk(ctx context.Context, d FS, name string, c *Cursor, visit func(f *os.File, isDir bool) error) error {
	if c.done {
		return nil
	}
	top, err := d.Open(name)
	if err != nil {
		return err
	}
	if top.File == nil {
		return openat.Failed("walk", name, errors.ErrUnsupported)
	}
	defer c.pause()
	err = c.resume(top.File)
	for err == nil && len(c.way) > 0 {
		if err = ctx.Err(); err == nil {
			err = c.advance(visit)
		}
	}
	c.done = err == nil
	return err
}

// resume opens the directories on the way. What is below one that is gone needs no visit any more.
func (c *Cursor) resume(top *os.File) error {
	if len(c.way) == 0 {
		c.way = []level{{}}
	}
	for i := range c.way {
		l, err := &c.way[i], error(nil)
		if l.Dir = top; i > 0 {
			l.Dir, err = openat.Open(c.way[i-1].Dir, l.name, unix.O_DIRECTORY, openat.SameMount)
		}
		if passes(err) {
			c.way = c.way[:i]
			return nil
		}
		if err == nil {
			_, err = l.Dir.Seek(l.next, io.SeekStart)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cursor) pause() {
	for i := range c.way {
		l := &c.way[i]
		_ = l.Dir.Close() // it was open for reading
		l.Listing = openat.Listing{}
	}
}

// advance visits one entry, or leaves a directory that has no more.
func (c *Cursor) advance(visit func(f *os.File, isDir bool) error) error {
	l := &c.way[len(c.way)-1]
	e, err := l.Take()
	if err != nil {
		return err
	}
	if e == nil {
		c.way = c.way[:len(c.way)-1]
		return l.Dir.Close()
	}
	f, isDir, err := c.open(l.Dir, e.Name)
	if passes(err) {
		l.next = e.Next
		return nil
	}
	if err != nil {
		return err
	}
	if isDir && len(c.way) == maxDepth {
		err = fmt.Errorf("%w: directories are nested more than %d deep",
			openat.Failed("walk", f.Name(), unix.ENAMETOOLONG), maxDepth)
	} else {
		err = visit(f, isDir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	c.visited++
	l.next = e.Next
	if !isDir {
		return f.Close()
	}
	c.way = append(c.way, level{Listing: openat.Listing{Dir: f}, name: e.Name})
	return nil
}

// passes reports whether a name is not to be visited: it is gone, another filesystem is mounted there, or it is neither
// a directory nor a regular file.
func passes(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENOTDIR) || errors.Is(err, openat.ErrKind)
}
