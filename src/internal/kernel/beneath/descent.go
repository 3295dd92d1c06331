package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// window is how many directories of the path that a descent is on stay open: enough for every ordinary tree, far
// below any limit of descriptors. Those further up are found again through "..".
const window = 64

// descent is a way down a tree, however deep: a stack of directories, the last one being read.
type descent struct {
	top   place
	above string // path of top, for messages
	buf   []byte
	stack []level
}

// descend begins at a name, whose place is p; nothing is open yet.
func (d *Dir) descend(p place, name string) descent {
	return descent{top: p, above: strings.TrimSuffix(d.path(name), p.last), buf: make([]byte, portion)}
}

// level is a directory on the way to where a descent is.
type level struct {
	name     string
	fd       int   // -1 outside the window
	offset   int64 // where to read on, when it is opened again
	dev, ino uint64
	entries  []Entry // read, still to be looked at
	progress bool    // something was removed since the listing began
	kept     bool    // something in it stays
}

// next is the next name in the current directory; ok is false at its end.
func (d *descent) next() (e Entry, ok bool, err error) {
	l := &d.stack[len(d.stack)-1]
	if len(l.entries) == 0 {
		if l.entries, err = list(l.fd, d.buf); err != nil {
			return e, false, d.fail("readdir", "", err)
		}
	}
	if len(l.entries) == 0 {
		return e, false, nil
	}
	e = l.entries[0]
	l.entries = l.entries[1:]
	return e, true, nil
}

// open opens a directory of the current one; it is not the current one yet.
func (d *descent) open(name string) (fd int, err error) {
	return openat2(d.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY, within)
}

// push makes a directory that was opened the current one; fd is the descent's from then on.
func (d *descent) push(name string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.Join(d.fail("stat", name, err), unix.Close(fd))
	}
	d.stack = append(d.stack, level{name: name, fd: fd, dev: st.Dev, ino: st.Ino})
	outside := len(d.stack) - 1 - window
	if outside < 0 {
		return nil
	}
	l := &d.stack[outside]
	offset, err := unix.Seek(l.fd, 0, unix.SEEK_CUR)
	if err != nil {
		return d.fail("seek", "", err)
	}
	_ = unix.Close(l.fd) // nothing was written through it
	l.offset, l.fd = offset, -1
	return nil
}

// pop goes on in the directory above, which reopen has opened.
func (d *descent) pop() {
	last := len(d.stack) - 1
	_ = unix.Close(d.stack[last].fd)
	d.stack = d.stack[:last]
}

// reopen opens the directory above the current one, if it fell out of the window, through "..". Should somebody have
// moved the current directory meanwhile, that is another directory, and the work ends.
func (d *descent) reopen() error {
	above := len(d.stack) - 2
	if above < 0 || d.stack[above].fd >= 0 {
		return nil
	}
	l := &d.stack[above]
	fd, err := openat2(d.fd(), "..", unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return d.fail("open", "..", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Dev != l.dev || st.Ino != l.ino) {
		err = fmt.Errorf("%w: the directory was moved while it was being worked on", unix.EAGAIN)
	}
	if err == nil {
		_, err = unix.Seek(fd, l.offset, unix.SEEK_SET)
	}
	if err != nil {
		return errors.Join(d.fail("open", "..", err), unix.Close(fd))
	}
	l.fd = fd
	return nil
}

// fd is the current directory, parentFD the one above it.
func (d *descent) fd() int { return d.at(len(d.stack) - 1) }

func (d *descent) parentFD() int { return d.at(len(d.stack) - 2) }

func (d *descent) at(i int) int {
	if i < 0 {
		return d.top.fd
	}
	return d.stack[i].fd
}

func (d *descent) close() {
	for _, l := range d.stack {
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
}

// fail names what something could not be done with; of a very long path, both ends.
func (d *descent) fail(op, name string, err error) error {
	const ends = 8
	var elements []string
	for i, l := range d.stack {
		if i == ends && len(d.stack) > 2*ends {
			elements = append(elements, "…")
		}
		if i < ends || i >= len(d.stack)-ends {
			elements = append(elements, l.name)
		}
	}
	if name != "" {
		elements = append(elements, name)
	}
	return &fs.PathError{Op: op, Path: printable(d.above + strings.Join(elements, "/")), Err: err}
}
