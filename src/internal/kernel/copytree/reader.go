package copytree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// Reader reads one tree in slices. It keeps nothing that a new one would need to go on.
type Reader struct {
	// BestEffort goes on where something changed meanwhile, and counts it, which is ErrChanged otherwise: what is gone
	// is left out, a file that shrank ends with what was there, and one that was replaced is read anew.
	BestEffort bool
	// Clone leaves the data to be cloned by the Sink.
	Clone bool

	last []byte              // the position behind the last batch
	sent map[uint64]struct{} // keys of files with several names that are whole in batches up to there
}

const (
	maxSent  = 1 << 16 // inode numbers that a Reader remembers; a file that it has forgotten is read once for each name
	maxNames = 32000   // of a file, for its data to be sent but once: ext4 takes 65,000
)

// Next reads the next slice of the tree below root from a position on, Batch.Next of the batch before or nil. It makes
// some 1,000 steps at most, less when ctx ends, but one at least if ctx has not ended before. A batch ends when it has
// maxBytes of entries, not counting the names of the directories on the way to the first one; what one file has beside
// its data is in one entry. Behind the last batch is an empty one that is also the last.
func (r *Reader) Next(ctx context.Context, root *os.File, from []byte, maxBytes int) (Batch, error) {
	if err := ctx.Err(); err != nil {
		return Batch{}, err
	}
	if r.sent == nil || !bytes.Equal(from, r.last) {
		r.sent = map[uint64]struct{}{} // what comes may be for a Sink that has not seen them
	}
	s := slice{reader: r, max: maxBytes}
	defer s.close()
	err := s.resume(root, from)
	for steps := 0; err == nil && s.end == nil && !s.full() && steps < maxSteps; steps++ {
		if steps > 0 && ctx.Err() != nil {
			break
		}
		err = s.step()
	}
	if err != nil {
		r.sent = nil // nobody sees what this slice has
		return Batch{}, err
	}
	s.Next, s.Last = s.position(), s.end != nil
	r.last = s.Next
	return s.Batch, nil
}

func (s *slice) full() bool {
	return len(s.Entries) >= s.max || s.reader.Clone && s.Bytes >= cloneBatch
}

// step takes one name of the current directory, or leaves it, or reads a piece of the current file.
func (s *slice) step() error {
	l := &s.way[len(s.way)-1]
	if s.file != nil {
		return s.stepFile(l.Dir)
	}
	e, err := l.Take()
	if err != nil {
		return err
	}
	if e == nil {
		return s.leave(l)
	}
	l.Offset = e.Next
	found, st, err := openat.Lookup(l.Dir, e.Name)
	switch {
	case errors.Is(err, unix.EXDEV): // of a file that another one is mounted on nothing remains
		if s.Skipped++; !e.IsDir {
			return nil
		}
		s.Files++
		s.add(entry.New(entry.EnterDir, e.Name))
		_, err = s.addLeave(l.Dir)
		return err
	case openat.IsGone(err):
		return s.changed(l.Dir, e.Name)
	case err != nil:
		return err
	}
	defer found.Close()
	s.Files++
	switch entry.KindOf(st) {
	case unix.S_IFDIR:
		return s.enter(entry.About(entry.EnterDir, e.Name, st), found, uint64(st.Dev))
	case unix.S_IFREG:
		return s.begin(entry.About(entry.BeginFile, e.Name, st), found, int(st.Nlink))
	default:
		return s.other(entry.About(entry.MakeOther, e.Name, st), found, st)
	}
}

// enter makes a directory the current one. A subvolume is left at once.
func (s *slice) enter(e *entry.Entry, found *os.File, device uint64) error {
	if len(s.way) > maxDepth {
		return fmt.Errorf("%s: %w", found.Name(), ErrDeep)
	}
	dir, err := openat.Reopen(found, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
	if err != nil {
		return err
	}
	s.add(e)
	if device != s.device {
		defer dir.Close()
		s.Skipped++
		_, err = s.addLeave(dir)
		return err
	}
	s.way = append(s.way, level{Listing: openat.Listing{Dir: dir}, Entry: e})
	return nil
}

// leave ends the current directory.
func (s *slice) leave(l *level) error {
	st, err := openat.Stat(l.Dir)
	if err == nil && (st.Mtim.Nano() != l.Changed || st.Nlink == 0) {
		err = s.changed(l.Dir, ".")
	}
	if err != nil {
		return err
	}
	e, err := s.addLeave(l.Dir)
	if err != nil {
		return err
	}
	if s.way = s.way[:len(s.way)-1]; len(s.way) == 0 {
		s.end = &entry.Entry{Head: e.Head}
	}
	return l.Dir.Close()
}

// other sends a link, a FIFO, a socket or a device.
func (s *slice) other(e *entry.Entry, found *os.File, st *unix.Stat_t) error {
	if entry.KindOf(st) == unix.S_IFLNK {
		e.Data = make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(found.Fd()), "", e.Data)
		if err != nil {
			return openat.Failed("readlink", found.Name(), err)
		}
		e.Data = e.Data[:n]
	}
	err := e.Read(found, st)
	s.add(e)
	return err
}

// add adds an entry to the batch.
func (s *slice) add(e *entry.Entry) { s.Entries = e.AppendTo(s.Entries) }

// addLeave ends a directory, which gets the attributes of an open one.
func (s *slice) addLeave(dir *os.File) (*entry.Entry, error) {
	e := entry.New(entry.LeaveDir, "")
	st, err := openat.Stat(dir)
	if err == nil {
		err = e.Read(dir, st)
	}
	s.add(e)
	return e, err
}

// changed takes note of something that changed.
func (s *slice) changed(dir *os.File, name string) error {
	if !s.reader.BestEffort {
		return fmt.Errorf("%s: %w", openat.Path(dir, name), ErrChanged)
	}
	s.Changed++
	return nil
}
