// Package removetree removes a tree of files that somebody hostile may have made: of any depth and width, in bounded
// memory, and a part at a time.
package removetree

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// maxOpen is how many directories Remove has open. It is enough for ordinary trees, and for one way down and up to take
// less than 200 steps.
const maxOpen = 64

// Prefix begins the names that Remove gives to directories that it moves up.
const Prefix = ".removing-"

// Remove removes whatever has a name in an open directory, without following links or entering mounts, and what an
// earlier Remove has moved beside it. step, which may be nil, is called before each system call that opens, moves or
// removes something; its error ends the work, which can be taken up again later and has come nearer to its end if
// step allowed some 200 calls. To that end a directory that lies deep is moved up: beside the name, or into it. A
// name that is gone is no error; immutable and append-only flags are cleared; what cannot be removed (a mount point)
// is left while the rest goes, and the error names the first such thing.
func Remove(ctx context.Context, dir *os.File, name string, step func(context.Context) error) error {
	r := remover{ctx: ctx, step: step, stack: []level{{Listing: openat.Listing{Dir: dir}}}}
	defer r.close()
	for again := true; again && r.stopped == nil; again = r.moved {
		r.first, r.kept, r.moved = nil, 0, false
		r.tree(name)
		if err := r.leftovers(); err != nil {
			return err
		}
	}
	if r.stopped == nil && r.kept > 1 {
		return fmt.Errorf("%w (and %d more could not be removed)", r.first, r.kept-1)
	}
	return cmp.Or(r.stopped, r.first)
}

// leftovers removes what was moved beside the name.
func (r *remover) leftovers() error {
	beside, err := openat.Open(r.stack[0].Dir, ".", unix.O_DIRECTORY, openat.Beneath)
	if err != nil {
		return err
	}
	defer beside.Close()
	listing := openat.Listing{Dir: beside}
	for {
		e, err := listing.Take()
		if e == nil || r.stopped != nil {
			return err
		}
		if strings.HasPrefix(e.Name, Prefix) {
			r.tree(e.Name)
		}
	}
}

// remover is one Remove. Its stack begins with the directory that has the name; the last one is being emptied.
type remover struct {
	ctx     context.Context
	step    func(context.Context) error
	stack   []level
	moved   bool  // a directory was moved beside the name
	stopped error // what step ended the work with
	first   error // why the first thing that is left could not be removed
	kept    int   // how many such things there are
}

// level is an open directory on the way down the tree.
type level struct {
	openat.Listing
	name     string // in the directory above
	progress bool   // something in it was removed
	kept     bool   // something in it stays
}

// tree removes one name of the first directory.
func (r *remover) tree(name string) {
	r.remove(openat.Entry{Name: name})
	for len(r.stack) > 1 && r.stopped == nil {
		e, err := r.last().Take()
		if err != nil {
			r.keep(err)
		}
		if e == nil {
			r.leave()
		} else {
			r.remove(*e)
		}
	}
}

// remove removes a file, or enters a directory.
func (r *remover) remove(e openat.Entry) {
	err := error(unix.EISDIR)
	if !e.IsDir {
		err = r.try(e.Name, func(dir int) error { return unix.Unlinkat(dir, e.Name, 0) })
	}
	switch {
	case !errors.Is(err, unix.EISDIR):
		r.done(e.Name, err)
	case len(r.stack) == maxOpen:
		r.moveUp()
	default:
		r.enter(e.Name)
	}
}

// enter opens a directory, to empty it. A subvolume is destroyed instead, with all that it has.
func (r *remover) enter(name string) {
	if !r.may() {
		return
	}
	dir := r.last().Dir
	f, err := openat.Open(dir, name, unix.O_DIRECTORY, openat.SameMount)
	if err != nil {
		r.done(name, err)
		return
	}
	subvolume, err := btrfs.IsSubvolume(f)
	if err == nil && !subvolume {
		r.stack = append(r.stack, level{Listing: openat.Listing{Dir: f}, name: name})
		return
	}
	_ = f.Close() // it was open for reading
	if subvolume {
		err = r.try(name, func(int) error {
			return btrfs.DestroyTree(r.ctx, dir, name, func(context.Context) error { r.may(); return r.stopped })
		})
	}
	r.done(name, err)
}

// leave removes the current directory, if nothing in it stays, and goes on in the one above.
func (r *remover) leave() {
	l := r.pop()
	if l.kept {
		r.last().kept = true
		return
	}
	err := r.try(l.name, func(dir int) error { return unix.Unlinkat(dir, l.name, unix.AT_REMOVEDIR) })
	if errors.Is(err, unix.ENOTEMPTY) && l.progress {
		r.enter(l.name) // some filesystems skip entries in a listing when others are removed
		return
	}
	r.done(l.name, err)
}

// moveUp moves the current directory beside the name, or where that is impossible (EXDEV, no space) into the directory
// of that name, and goes on in the one above.
func (r *remover) moveUp() {
	l, to := r.pop(), Prefix+rand.Text()
	err := error(nil)
	for target := range 2 {
		dest := &r.stack[target]
		err = r.try(l.name, func(dir int) error {
			return unix.Renameat2(dir, l.name, int(dest.Dir.Fd()), to, unix.RENAME_NOREPLACE)
		})
		if err == nil {
			dest.progress = true
			r.moved = r.moved || target == 0
			break
		}
	}
	r.done(l.name, err)
}

// try makes a system call on a name of the current directory. What an immutable or append-only flag of either forbids
// is tried once more without the flag.
func (r *remover) try(name string, call func(dir int) error) error {
	if !r.may() {
		return r.stopped
	}
	dir := r.last().Dir
	err := call(int(dir.Fd()))
	if errors.Is(err, unix.EPERM) && r.unlock(name) && r.may() {
		err = call(int(dir.Fd()))
	}
	return err
}

// unlock reports whether it cleared a flag. Where it cannot, the EPERM is reported.
func (r *remover) unlock(name string) bool {
	above, here, dir := false, false, r.last().Dir
	if len(r.stack) > 1 {
		above, _ = openat.Unlock(dir)
	}
	if f, _, err := openat.Plain(dir, name); err == nil {
		here, _ = openat.Unlock(f)
		_ = f.Close() // it was open for reading
	}
	return above || here
}

// may asks the caller whether and when the next system call may be.
func (r *remover) may() bool {
	if r.stopped == nil {
		r.stopped = r.ctx.Err()
	}
	if r.stopped == nil && r.step != nil {
		r.stopped = r.step(r.ctx)
	}
	return r.stopped == nil
}

// done takes note of how removing a name of the current directory ended.
func (r *remover) done(name string, err error) {
	switch {
	case r.stopped != nil:
	case err == nil || errors.Is(err, fs.ErrNotExist):
		r.last().progress = true
	default:
		r.keep(openat.Failed("remove", openat.Path(r.last().Dir, name), err))
	}
}

// keep takes note of something that stays in the current directory.
func (r *remover) keep(err error) {
	r.last().kept = true
	r.kept++
	r.first = cmp.Or(r.first, err)
}

func (r *remover) last() *level { return &r.stack[len(r.stack)-1] }

func (r *remover) pop() level {
	l := *r.last()
	_ = l.Dir.Close() // it was open for reading
	r.stack = r.stack[:len(r.stack)-1]
	return l
}

// close closes all but the first directory.
func (r *remover) close() {
	for len(r.stack) > 1 {
		r.pop()
	}
}
