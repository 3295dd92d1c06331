package copytree

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// slice is one call of Reader.Next. A position is its way and its file, as entries, or its end.
type slice struct {
	Batch
	reader *Reader
	max    int
	device uint64       // st_dev of the root
	way    []level      // the tree's root and the directories down to the current one; empty at the end
	file   *entry.Entry // the current file, which is read up to its Offset, or nil
	open   *os.File     // it, or nil
	end    *entry.Entry // at the end: the root's attributes
}

// level is a directory on the way.
type level struct {
	openat.Listing
	*entry.Entry
}

func (s *slice) close() {
	for _, l := range s.way {
		if l.Dir != nil {
			_ = l.Dir.Close() // it was open for reading
		}
	}
	s.closeFile()
}

func (s *slice) closeFile() {
	if s.open != nil {
		_ = s.open.Close() // it was open for reading
	}
	s.open, s.file = nil, nil
}

func (s *slice) position() []byte {
	out := entry.Begin()
	for _, l := range s.way {
		out = l.AppendTo(out)
	}
	if e := cmp.Or(s.file, s.end); e != nil {
		out = e.AppendTo(out)
	}
	return out
}

// decode reads a position. None is the beginning.
func (s *slice) decode(from []byte) error {
	if len(from) == 0 {
		from = entry.New(entry.EnterDir, ".").AppendTo(entry.Begin())
	}
	for e, err := range entry.All(from) {
		if err != nil || !s.decodeOne(e) {
			return ErrPosition
		}
	}
	if len(s.way) == 0 && s.end == nil {
		return ErrPosition
	}
	return nil
}

// decodeOne reports whether an entry can stand in a position behind those before.
func (s *slice) decodeOne(e *entry.Entry) bool {
	if s.file != nil || s.end != nil {
		return false
	}
	top := len(s.way) == 0
	switch e.Kind {
	case entry.EnterDir:
		if top {
			e.Name = "."
		}
		s.way = append(s.way, level{Entry: e})
		return len(s.way) <= maxDepth+1 && (top || entry.IsName(e.Name))
	case entry.GoOnFile:
		s.file = e
		return !top && entry.IsName(e.Name) && e.Offset >= 0
	case entry.LeaveDir:
		s.end = e
		return top
	default:
		return false
	}
}

// resume opens the directories on the way. The batch repeats the way for the Sink.
func (s *slice) resume(root *os.File, from []byte) error {
	if err := s.decode(from); err != nil {
		return err
	}
	s.Entries = entry.Begin()
	for _, l := range s.way[min(1, len(s.way)):] {
		s.add(l.Entry)
	}
	if s.file != nil {
		s.add(s.file)
	}
	s.max += len(s.Entries)
	above := root
	for i := range s.way {
		l := &s.way[i]
		err := s.resumeDir(l, above, i == 0)
		if i > 0 && openat.IsGone(err) {
			return s.lost(i)
		}
		if err != nil {
			return err
		}
		above = l.Dir
	}
	return nil
}

// resumeDir opens a directory on the way, and goes on behind what was read of it.
func (s *slice) resumeDir(l *level, above *os.File, top bool) (err error) {
	if l.Dir, err = openat.Open(above, l.Name, unix.O_DIRECTORY|unix.O_NOATIME, openat.SameMount); err != nil {
		return err
	}
	st, err := openat.Stat(l.Dir)
	if err != nil {
		return err
	}
	if top {
		s.device = uint64(st.Dev)
	}
	if top && l.Ino == 0 { // the beginning
		l.Entry = entry.About(entry.EnterDir, l.Name, st)
	}
	switch _, err = l.Dir.Seek(l.Offset, io.SeekStart); {
	case err != nil || top && l.Ino != st.Ino:
		return fmt.Errorf("%s: %w", l.Dir.Name(), errors.Join(ErrPosition, err))
	case l.Ino != st.Ino: // another one of that name
		return openat.FailedAt("open", above, l.Name, fs.ErrNotExist)
	}
	return nil
}

// lost leaves the directories of the way from one on, which is not there any more. What was copied of them remains;
// they get the attributes of the one above them.
func (s *slice) lost(from int) error {
	above := s.way[from-1].Dir
	if err := s.changed(above, s.way[from].Name); err != nil {
		return fmt.Errorf("%w: %w", err, ErrPosition)
	}
	if s.file != nil {
		s.add(entry.New(entry.DropFile, s.file.Name))
		s.file = nil
	}
	for ; len(s.way) > from; s.way = s.way[:len(s.way)-1] {
		if dir := s.way[len(s.way)-1].Dir; dir != nil {
			_ = dir.Close() // it was open for reading
		}
		if _, err := s.addLeave(above); err != nil {
			return err
		}
	}
	return nil
}
