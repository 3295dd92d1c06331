package copytree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// begin makes a file: an empty one, or one more name of one that has all its data.
func (t *target) begin(e *entry.Entry) error {
	kept, linked, err := t.claim(e, unix.S_IFREG)
	t.sink.linked = 0
	switch {
	case err != nil:
		return err
	case e.Kind == entry.LinkFile && !kept && !linked:
		return openat.FailedAt("link", t.here().File, e.Name, ErrBatch)
	case linked || e.Kind == entry.LinkFile:
		t.whole, t.sink.linked = true, e.Key()
		return t.openFile(e, 0)
	case kept && e.Key() != 0: // what it has is of this file, and may be behind a position that is yet to come
		return t.openFile(e, 0)
	case kept:
		return t.openFile(e, unix.O_TRUNC)
	}
	t.file, err = openat.Open(t.here().File, e.Name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, openat.SameMount)
	t.begun = e
	return err
}

// goOn makes the file current that was it in the batch before.
func (t *target) goOn(e *entry.Entry) error {
	t.whole = e.Key() != 0 && e.Key() == t.sink.linked
	return t.openFile(e, 0)
}

// openFile makes a file that is there the current one, and takes its flags away.
func (t *target) openFile(e *entry.Entry, flags int) error {
	f, isDir, err := openat.Plain(t.here().File, e.Name)
	if openat.IsGone(err) {
		return errors.Join(ErrBatch, err)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = openat.Unlock(f); err == nil && isDir {
		err = openat.FailedAt("write", t.here().File, e.Name, ErrBatch)
	}
	if err != nil {
		return err
	}
	st, err := openat.Stat(f)
	if err != nil {
		return err
	}
	t.had = t.sink.Usage.UsedBy(st)
	t.file, err = openat.Reopen(f, unix.O_RDWR|flags)
	t.begun = e
	return err
}

// claim takes a name of the current directory for a file. It reports whether the name has been kept, since it is that
// file's, or linked, as one more name of it. Something else that had the name is removed, unless it is a directory.
// A file that is linked has all its data, or it would not be among the links. One that is kept may be of a slice that
// was never synced, and a power cut may have taken its data.
func (t *target) claim(e *entry.Entry, kind uint32) (kept, linked bool, err error) {
	f, st, err := openat.Lookup(t.here().File, e.Name)
	if err == nil {
		defer f.Close()
		kept, err = t.links.Has(e.Key(), st)
		kept = entry.KindOf(st) == kind && (kept || kind == unix.S_IFREG && e.Key() == 0 && st.Nlink == 1)
		if err != nil || kept {
			return kept, false, err
		}
		err = openat.Remove(t.here().File, e.Name)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		t.sink.Usage.AddName(e.Name)
		linked, err = t.links.Link(e.Key(), t.here().File, e.Name)
	}
	return false, linked, err
}

// makeOther makes a link, a FIFO, a socket or a device.
func (t *target) makeOther(e *entry.Entry) error {
	dir, kind := t.here().File, e.Mode&unix.S_IFMT
	kept, linked, err := t.claim(e, kind)
	if err == nil && !kept && !linked {
		err = e.Make(dir)
	}
	if err != nil {
		return err
	}
	f, st, err := openat.Lookup(dir, e.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	if entry.KindOf(st) != kind {
		return openat.FailedAt("create", dir, e.Name, ErrBatch)
	}
	had := int64(0)
	if kept || linked {
		had = t.sink.Usage.UsedBy(st)
	}
	if err = t.links.Add(e.Key(), dir, e.Name, st); err == nil {
		err = e.Apply(f)
	}
	t.sink.Usage.Add(f, had)
	return err
}

// applyToFile does what an entry says about the current file.
func (t *target) applyToFile(e *entry.Entry) error {
	switch {
	case t.file == nil || e.Offset < 0 || e.Size < 0:
		return openat.FailedAt("copy", t.here().File, ".", ErrBatch)
	case e.Kind == entry.EndFile:
		err := t.endFile(e)
		t.closeFile()
		return err
	case e.Kind == entry.CloneData && t.sink.Source == nil:
		return openat.FailedAt("clone", t.here().File, t.begun.Name, ErrBatch)
	case t.whole && e.Kind == entry.CloneData:
		t.sink.Spared += e.Size
		return nil
	case t.whole:
		t.sink.Spared += int64(len(e.Data))
		return nil
	case e.Kind == entry.CloneData:
		return t.clone(e)
	}
	_, err := t.file.WriteAt(e.Data, e.Offset)
	return err
}

// endFile gives the current file its size and attributes. XFS allocates ahead for who writes, and goes on to count that
// where the file was closed in between, until it is truncated. The name among the links comes after the data, and
// before the flags, which forbid it.
func (t *target) endFile(e *entry.Entry) error {
	st, err := openat.Stat(t.file)
	ahead := err == nil && st.Blocks*512 >= e.Size+cloneUnit
	if err == nil && (st.Size != e.Size || ahead) && !t.whole {
		err = t.file.Truncate(e.Size)
	}
	if err == nil {
		err = t.links.Add(t.begun.Key(), t.here().File, t.begun.Name, st)
	}
	if err == nil {
		err = e.ApplyAll(t.file)
	}
	return err
}

// cloneUnit is the largest block of a filesystem that has clones, in bytes.
const cloneUnit = 64 << 10

// clone takes data from the file's like in the source.
func (t *target) clone(e *entry.Entry) error {
	err := error(unix.ENOENT)
	if source := t.here().source; source != nil {
		err = t.cloneFrom(source, e)
	}
	if errors.Is(err, ErrNoClone) || !openat.IsGone(err) && !errors.Is(err, ErrChanged) {
		return err
	}
	if e.Changed == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", t.file.Name(), ErrChanged)
}

func (t *target) cloneFrom(dir *os.File, e *entry.Entry) error {
	found, st, err := openat.Lookup(dir, t.begun.Name)
	if err != nil {
		return err
	}
	defer found.Close()
	if entry.KindOf(st) != unix.S_IFREG {
		return ErrChanged
	}
	source, err := openData(found)
	if err != nil {
		return err
	}
	defer source.Close()
	if st, err = openat.Stat(source); err == nil {
		err = cloneRange(t.file, source, e.Offset, min(e.Size, st.Size-e.Offset), st.Size)
	}
	if err != nil {
		return err
	}
	if st, err = openat.Stat(source); err == nil && (st.Ino != t.begun.Ino || st.Ctim.Nano() != e.Changed) {
		err = ErrChanged
	}
	return err
}

// cloneRange clones a part of a file with a size. What does not end with a block has to end with the file.
func cloneRange(to, from *os.File, offset, length, size int64) error {
	if length <= 0 {
		return nil
	}
	length = min((length+cloneUnit-1)/cloneUnit*cloneUnit, size-offset)
	err := unix.IoctlFileCloneRange(int(to.Fd()), &unix.FileCloneRange{
		Src_fd: int64(from.Fd()), Src_offset: uint64(offset), Src_length: uint64(length), Dest_offset: uint64(offset),
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s: %w: %w", to.Name(), ErrNoClone, err)
	}
	return openat.Failed("clone", to.Name(), err)
}
