package beneath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

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
	r := remover{descent: d.descend(p, name), ctx: ctx, pace: pace}
	defer r.close()
	if err := r.run(Entry{Name: p.last, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}); err != nil {
		return err
	}
	if r.kept > 1 {
		return fmt.Errorf("%w (and %d more could not be removed)", r.first, r.kept-1)
	}
	return r.first
}

// remover is one RemoveTree: the last directory of the descent is being emptied.
type remover struct {
	descent
	ctx   context.Context
	pace  func(context.Context) error
	first error // why the first thing that is left could not be removed
	kept  int   // number of such things
}

func (r *remover) run(e Entry) error {
	if err := r.remove(e); err != nil {
		return err
	}
	for len(r.stack) > 0 {
		next, ok, err := r.next()
		switch {
		case err != nil:
			return err
		case ok:
			err = r.remove(next)
		default:
			err = r.leave()
		}
		if err != nil {
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
	fd, err := r.open(name)
	if err != nil {
		return r.removed(name, err)
	}
	return r.push(name, fd)
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
	name, kept := l.name, l.kept
	r.pop()
	if kept {
		r.keep()
		return nil
	}
	return r.removed(name, err)
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
