package beneath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Walk calls visit with every directory and every regular file below a directory, not with that itself, however deep. Each is open for reading
// until visit returns; a directory comes before what is in it. Links are not followed and mounts not entered; special
// files are not opened, which can have effects. What vanishes meanwhile is passed over. An error of visit, like that of ctx, ends
// the walk.
func (d *Dir) Walk(ctx context.Context, name string, visit func(f *os.File, isDir bool) error) error {
	p, err := d.parent("walk", name)
	if err != nil {
		return err
	}
	defer p.close()
	w := walker{descent: d.descend(p, name), visit: visit}
	defer w.close()
	fd, err := d.open("walk", name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if err := w.push(p.last, fd); err != nil {
		return err
	}
	return w.run(ctx)
}

// walker is one Walk.
type walker struct {
	descent
	visit func(f *os.File, isDir bool) error
}

func (w *walker) run(ctx context.Context) error {
	for {
		e, ok, err := w.next()
		switch {
		case err != nil:
			return err
		case ok && e.Dir:
			err = w.enter(e.Name)
		case ok:
			err = w.file(e.Name)
		case len(w.stack) == 1:
			return nil
		default:
			err = w.reopen()
			w.pop()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// enter visits a directory and goes on in it.
func (w *walker) enter(name string) error {
	fd, err := w.open(name)
	if passes(err) {
		return nil
	}
	if err != nil {
		return w.fail("open", name, err)
	}
	lent, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = w.visited(name, lent, true)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return w.push(name, fd)
}

// file visits a file that is a regular one. What it is comes from a descriptor that opens nothing, and the same file is opened then.
func (w *walker) file(name string) error {
	path, err := openat2(w.fd(), name, unix.O_PATH|unix.O_NOFOLLOW, within)
	if passes(err) {
		return nil
	}
	if err != nil {
		return w.fail("open", name, err)
	}
	defer unix.Close(path)
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return w.fail("stat", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	fd, err := openat2(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(path), unix.O_RDONLY, 0)
	if err != nil {
		return w.fail("open", name, err)
	}
	return w.visited(name, fd, false)
}

// visited calls visit with a descriptor, and closes that.
func (w *walker) visited(name string, fd int, isDir bool) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := w.visit(f, isDir); err != nil {
		return w.fail("visit", name, errno(err))
	}
	return nil
}

// passes tells that a name is not to be visited: it is gone, is something else by now, or another filesystem is mounted there.
func passes(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}
