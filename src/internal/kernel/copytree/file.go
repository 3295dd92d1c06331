package copytree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// begin makes a regular file the current one, or sends that it is another name of one that was sent.
func (s *slice) begin(e *entry.Entry, found *os.File, names int) (err error) {
	if s.open, err = openData(found); err != nil {
		return err
	}
	s.file = e
	if _, is := s.reader.sent[e.Key()]; is && names < maxNames {
		e.Kind, e.Offset = entry.LinkFile, e.Size
	}
	s.add(e)
	e.Kind = entry.GoOnFile
	return nil
}

// stepFile sends the next piece of the current file, or its end.
func (s *slice) stepFile(dir *os.File) error {
	if s.open == nil {
		if err := s.reopen(dir); err != nil || s.open == nil {
			return err
		}
	}
	start, end, err := s.nextData()
	if err != nil {
		return openat.Failed("seek", s.open.Name(), err)
	}
	e := &entry.Entry{Head: entry.Head{Kind: entry.CloneData, Offset: start, Size: min(end-start, clonePiece)}}
	if !s.reader.BestEffort {
		e.Changed = s.file.Changed
	}
	if !s.reader.Clone && end > start {
		e.Kind, e.Data = entry.WriteData, make([]byte, min(end-start, int64(max(s.max-len(s.Entries), leastPiece))))
		n, err := s.open.ReadAt(e.Data, start)
		if n == 0 && !errors.Is(err, io.EOF) { // where it is shorter by now, it ends
			return err
		}
		e.Data, e.Size = e.Data[:n], int64(n)
	}
	if e.Size == 0 {
		return s.endFile()
	}
	s.add(e)
	s.Bytes += e.Size
	s.file.Offset = start + e.Size
	return nil
}

// nextData is where the next data of the current file is, up to a hole. At the end nothing is between start and end.
func (s *slice) nextData() (start, end int64, err error) {
	if s.file.Offset >= s.file.Size {
		return 0, 0, nil
	}
	fd := int(s.open.Fd())
	start, err = unix.Seek(fd, s.file.Offset, unix.SEEK_DATA)
	if err == nil {
		end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	}
	if errors.Is(err, unix.ENXIO) || start >= s.file.Size { // only a hole remains, or it is shorter by now
		return 0, 0, nil
	}
	return start, min(end, s.file.Size), err
}

// reopen opens the current file for another slice. If it is gone, there is none any more.
func (s *slice) reopen(dir *os.File) error {
	was := s.file
	found, st, err := openat.Lookup(dir, was.Name)
	if err == nil {
		defer found.Close()
	}
	switch {
	case openat.IsGone(err) || err == nil && entry.KindOf(st) != unix.S_IFREG:
		s.add(entry.New(entry.DropFile, was.Name))
		s.file = nil
		return s.changed(dir, was.Name)
	case err != nil:
		return err
	case st.Ino != was.Ino || st.Ctim.Nano() != was.Changed && !s.reader.BestEffort: // entry.EndFile counts it
		if err = s.changed(dir, was.Name); err != nil {
			return err
		}
		return s.begin(entry.About(entry.BeginFile, was.Name, st), found, int(st.Nlink))
	}
	s.open, err = openData(found)
	return err
}

// openData opens a regular file to read it. It does not wait for the end of a lease.
func openData(found *os.File) (*os.File, error) {
	f, err := openat.Reopen(found, unix.O_RDONLY|unix.O_NOATIME|unix.O_NONBLOCK)
	if errors.Is(err, unix.EAGAIN) {
		err = fmt.Errorf("%w: %w", ErrLeased, err)
	}
	return f, err
}

// endFile ends the current file.
func (s *slice) endFile() error {
	st, err := openat.Stat(s.open)
	if err == nil && (st.Ctim.Nano() != s.file.Changed || st.Size != s.file.Size) {
		err = s.changed(s.open, ".")
	}
	e := entry.New(entry.EndFile, "")
	if err == nil {
		e.Size = min(s.file.Size, st.Size)
		err = e.Read(s.open, st)
	}
	s.add(e)
	if key := s.file.Key(); key != 0 && len(s.reader.sent) < maxSent {
		s.reader.sent[key] = struct{}{}
	}
	s.closeFile()
	return err
}
