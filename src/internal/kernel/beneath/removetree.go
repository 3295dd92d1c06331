package beneath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// window is how many directories of the path that RemoveTree is on stay open: enough for every ordinary tree, far
// below any limit of descriptors. Those further up are found again through "..".
const window = 64

// RemoveTree removes whatever name is, however deep, without following links or entering mounts. pace is called
// before each removal and its error, like that of ctx, ends the work, which can be taken up again later. What
// cannot be removed (a mount point, an immutable file, a read-only snapshot) is left while the rest goes; the error names
// the first such thing. A name that is gone is no error.
func (d *Dir) RemoveTree(ctx context.Context, name string, pace func(context.Context) error) error {
	p, err := d.entry("remove", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	var st unix.Stat_t
	err = unix.Fstatat(p.fd, p.last, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return d.fail("remove", name, err)
	}
	r := remover{ctx: ctx, pace: pace, top: p, above: strings.TrimSuffix(d.path(name), p.last), buf: make([]byte, portion)}
	defer r.close()
	if err := r.run(Entry{Name: p.last, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}); err != nil {
		return err
	}
	if r.kept > 1 {
		return fmt.Errorf("%w (and %d more could not be removed)", r.first, r.kept-1)
	}
	return r.first
}

// remover is one RemoveTree: a stack of directories, the last one being emptied.
type remover struct {
	ctx   context.Context
	pace  func(context.Context) error
	top   place
	above string // path of top, for messages
	buf   []byte
	stack []level
	first error // why the first thing that is left could not be removed
	kept  int   // number of such things
}

// level is a directory on the way to where the remover is.
type level struct {
	name     string
	fd       int   // -1 outside the window
	offset   int64 // where to read on, when it is opened again
	dev, ino uint64
	entries  []Entry // read, still to be removed
	progress bool    // something was removed since the listing began
	kept     bool    // something in it stays
}

func (r *remover) run(e Entry) error {
	if err := r.remove(e); err != nil {
		return err
	}
	for len(r.stack) > 0 {
		l := &r.stack[len(r.stack)-1]
		if len(l.entries) == 0 {
			entries, err := list(l.fd, r.buf)
			if err != nil {
				return r.fail("readdir", "", err)
			}
			l.entries = entries
		}
		if len(l.entries) == 0 {
			if err := r.leave(); err != nil {
				return err
			}
			continue
		}
		next := l.entries[0]
		l.entries = l.entries[1:]
		if err := r.remove(next); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file, or enters a directory.
func (r *remover) remove(e Entry) error {
	if e.Dir {
		return r.enter(e.Name)
	}
	if err := r.wait(); err != nil {
		return err
	}
	return r.removed(e.Name, unix.Unlinkat(r.fd(), e.Name, 0))
}

// enter makes a directory of the current one the current one.
func (r *remover) enter(name string) error {
	fd, err := openat2(r.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY, within)
	if err != nil {
		return r.removed(name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.Join(r.fail("stat", name, err), unix.Close(fd))
	}
	r.stack = append(r.stack, level{name: name, fd: fd, dev: st.Dev, ino: st.Ino})
	if outside := len(r.stack) - 1 - window; outside >= 0 {
		l := &r.stack[outside]
		if l.offset, err = unix.Seek(l.fd, 0, unix.SEEK_CUR); err != nil {
			return r.fail("seek", "", err)
		}
		_ = unix.Close(l.fd) // nothing was written through it
		l.fd = -1
	}
	return nil
}

// leave removes the current directory, if nothing in it stays, and goes on in the one above.
func (r *remover) leave() error {
	if err := r.reopen(); err != nil {
		return err
	}
	last := len(r.stack) - 1
	l := &r.stack[last]
	var err error
	if !l.kept {
		if err := r.wait(); err != nil {
			return err
		}
		err = unix.Unlinkat(r.parentFD(), l.name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOTEMPTY) && l.progress {
		// Entries came in between, or the filesystem's listing skips some after removals: read it again.
		l.progress = false
		if _, err := unix.Seek(l.fd, 0, unix.SEEK_SET); err != nil {
			return r.fail("seek", "", err)
		}
		return nil
	}
	_ = unix.Close(l.fd)
	name, kept := l.name, l.kept
	r.stack = r.stack[:last]
	if kept {
		r.keep()
		return nil
	}
	return r.removed(name, err)
}

// reopen opens the directory above the current one, if it fell out of the window, through "..". Should somebody have
// moved the current directory meanwhile, that is another directory, and the work ends.
func (r *remover) reopen() error {
	above := len(r.stack) - 2
	if above < 0 || r.stack[above].fd >= 0 {
		return nil
	}
	l := &r.stack[above]
	fd, err := openat2(r.fd(), "..", unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return r.fail("open", "..", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Dev != l.dev || st.Ino != l.ino) {
		err = fmt.Errorf("%w: the directory was moved while it was being removed", unix.EAGAIN)
	}
	if err == nil {
		_, err = unix.Seek(fd, l.offset, unix.SEEK_SET)
	}
	if err != nil {
		return errors.Join(r.fail("open", "..", err), unix.Close(fd))
	}
	l.fd = fd
	return nil
}

// wait asks the caller whether and when the next removal may be.
func (r *remover) wait() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.pace == nil {
		return nil
	}
	return r.pace(r.ctx)
}

// removed takes note of how removing a name of the current directory ended.
func (r *remover) removed(name string, err error) error {
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		if n := len(r.stack); n > 0 {
			r.stack[n-1].progress = true
		}
		return nil
	case !stays(err):
		return r.fail("remove", name, err)
	}
	if r.first == nil {
		r.first = r.fail("remove", name, explain(r.fd(), name, err))
	}
	r.kept++
	r.keep()
	return nil
}

// keep marks the current directory as one that cannot be removed.
func (r *remover) keep() {
	if n := len(r.stack); n > 0 {
		r.stack[n-1].kept = true
	}
}

// stays tells whether an error concerns one name only, so that the others are worth trying.
func stays(err error) bool {
	for _, one := range []error{unix.EPERM, unix.EACCES, unix.EBUSY, unix.EXDEV, unix.EROFS, unix.ENOTEMPTY} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// fd is the current directory, parentFD the one above it.
func (r *remover) fd() int { return r.at(len(r.stack) - 1) }

func (r *remover) parentFD() int { return r.at(len(r.stack) - 2) }

func (r *remover) at(i int) int {
	if i < 0 {
		return r.top.fd
	}
	return r.stack[i].fd
}

func (r *remover) close() {
	for _, l := range r.stack {
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
}

// fail names what could not be removed; of a very long path, both ends.
func (r *remover) fail(op, name string, err error) error {
	const ends = 8
	var elements []string
	for i, l := range r.stack {
		if i == ends && len(r.stack) > 2*ends {
			elements = append(elements, "…")
		}
		if i < ends || i >= len(r.stack)-ends {
			elements = append(elements, l.name)
		}
	}
	if name != "" {
		elements = append(elements, name)
	}
	return &fs.PathError{Op: op, Path: printable(r.above + strings.Join(elements, "/")), Err: err}
}
