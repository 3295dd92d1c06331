package copytree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/links"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// Sink makes a tree of batches. It keeps nothing but Usage.Bytes that a new one would need to go on.
type Sink struct {
	// Links is the name of a directory that is in the target's root until Finish has removed it: a random one, the same
	// for all batches of a copy. A tree that has this name in its root is not copied.
	Links string
	// Source is the root that the Reader reads, from which data is cloned. It is nil where batches carry the data.
	Source *os.File
	// Spared is how much data, in bytes, of the batch that was applied last is of files that had it by another name.
	Spared int64

	// Usage is of the tree, also of a batch that failed half way.
	Usage usage.Count

	linked uint64 // the current file's Key, if it had all its data by another name when it was begun
}

// Apply makes what a batch says below root. What is there already, from the same batch or a later one, becomes what the
// batch says. It ends early with ctx, and can be called again with the same batch. A file that is not there to be
// cloned, or has changed, is ErrChanged, unless the Reader went on where something changed: then its data is a hole.
func (s *Sink) Apply(ctx context.Context, root *os.File, b Batch) error {
	s.Spared = 0
	t := target{sink: s}
	defer t.close()
	err := cmp.Or(s.Usage.Begin(root), t.push(root, s.Source, "."))
	t.links = links.Dir{Root: root, Name: s.Links}
	if err == nil && !entry.IsName(s.Links) {
		err = openat.FailedAt("copy", root, s.Links, fs.ErrInvalid)
	}
	if err != nil {
		return err
	}
	data := int64(0)
	for e, err := range entry.All(b.Entries) {
		if err == nil && e.Kind == entry.WriteData {
			data += int64(len(e.Data))
		}
		if err == nil && (len(t.way) == 0 || data > b.Bytes) { // it has left the root, or says less than it has
			err = ErrBatch
		}
		if err = cmp.Or(err, ctx.Err()); err == nil {
			err = t.apply(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Finish removes the directory of links and gives root what it has yet to get: times and flags. last is the position
// behind the last batch, which was applied. It removes some 1,000 names at most, less when ctx ends; while it is not
// done it is to be called again, as it is after a crash.
func (s *Sink) Finish(ctx context.Context, root *os.File, last []byte) (done bool, err error) {
	at := slice{}
	if err = cmp.Or(ctx.Err(), at.decode(last)); err == nil && (at.end == nil || !entry.IsName(s.Links)) {
		err = ErrPosition
	}
	if err != nil {
		return false, err
	}
	top, err := openat.Open(root, ".", unix.O_DIRECTORY, openat.SameMount)
	if err != nil {
		return false, err
	}
	defer top.Close()
	if _, err = openat.Unlock(top); err == nil {
		done, err = (&links.Dir{Root: top, Name: s.Links}).Remove(ctx, maxSteps)
	}
	if err != nil || !done {
		return false, err
	}
	if err = at.end.ApplyTimes(top); err == nil {
		at.end.Flags &^= openat.Fixed
		err = at.end.ApplyFlags(top)
	}
	return err == nil, err
}

// target is one call of Apply.
type target struct {
	sink  *Sink
	way   []place
	links links.Dir    // the keys are inode numbers in the source
	file  *os.File     // the current one, or nil
	begun *entry.Entry // what made it the current one
	had   int64        // what is counted of it, in bytes
	whole bool         // it has all its data by another name
}

// place is a directory on the way.
type place struct {
	*os.File
	source *os.File // its like in the source, or nil
	had    int64    // what is counted of it, in bytes
}

func (t *target) close() {
	t.closeFile()
	for len(t.way) > 0 {
		t.pop()
	}
	_ = t.links.Close() // it was open for reading
}

func (t *target) closeFile() {
	if t.file != nil {
		t.sink.Usage.Add(t.file, t.had)
		_ = t.file.Close() // whoever stores the position syncs the filesystem first
	}
	t.file, t.begun, t.had, t.whole = nil, nil, 0, false
}

// push goes into a directory, and takes away the flags that it may have from an earlier Apply.
func (t *target) push(above, source *os.File, name string) error {
	dir, err := openat.Open(above, name, unix.O_DIRECTORY, openat.SameMount)
	if err != nil {
		return err
	}
	p := place{File: dir}
	st, err := openat.Stat(dir)
	if err == nil {
		p.had = t.sink.Usage.UsedBy(st)
	}
	if err == nil && source != nil {
		p.source, err = openat.Open(source, name, unix.O_DIRECTORY|unix.O_NOATIME, openat.SameMount)
	}
	t.way = append(t.way, p)
	if err == nil || openat.IsGone(err) { // then nothing can be cloned from there
		_, err = openat.Unlock(dir)
	}
	return err
}

func (t *target) pop() {
	p := t.here()
	t.sink.Usage.Add(p.File, p.had)
	_ = p.Close() // it was open for reading
	if p.source != nil {
		_ = p.source.Close() // it was open for reading
	}
	t.way = t.way[:len(t.way)-1]
}

func (t *target) here() place { return t.way[len(t.way)-1] }

// apply does what one entry says.
func (t *target) apply(e *entry.Entry) error {
	t.sink.Usage.AddXattrs(e.Xattrs)
	if e.OfFile() {
		return t.applyToFile(e)
	}
	t.closeFile()
	if e.Kind == entry.LeaveDir {
		return t.leave(e)
	}
	if !entry.IsName(e.Name) || len(t.way) == 1 && e.Name == t.sink.Links {
		return openat.FailedAt("copy", t.here().File, e.Name, fs.ErrInvalid)
	}
	switch e.Kind {
	case entry.EnterDir:
		return t.enter(e.Name)
	case entry.BeginFile, entry.LinkFile:
		return t.begin(e)
	case entry.GoOnFile:
		return t.goOn(e)
	case entry.MakeOther:
		return t.makeOther(e)
	case entry.DropFile:
		return openat.Remove(t.here().File, e.Name)
	default:
		return ErrBatch
	}
}

func (t *target) enter(name string) error {
	p := t.here()
	if len(t.way) > maxDepth {
		return fmt.Errorf("%s: %w", openat.Path(p.File, name), ErrDeep)
	}
	made := unix.Mkdirat(int(p.Fd()), name, 0o700)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return openat.FailedAt("mkdir", p.File, name, made)
	}
	err := t.push(p.File, p.source, name)
	if err == nil && made == nil {
		t.way[len(t.way)-1].had = 0
		t.sink.Usage.AddName(name)
	}
	return err
}

// leave gives the current directory its attributes. The root's flags are Finish's: it has yet to change.
func (t *target) leave(e *entry.Entry) error {
	defer t.pop()
	if len(t.way) == 1 {
		return e.Apply(t.here().File)
	}
	return e.ApplyAll(t.here().File)
}
