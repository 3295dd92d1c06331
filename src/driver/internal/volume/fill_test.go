package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// gate is a host on whose disks staged directories are opened only as far as a test lets them be.
type gate struct {
	disk.Host
	mu      sync.Mutex
	opened  int
	closeAt int // the opening that waits, and those after it; 0 for none
	arrived chan struct{}
	passed  chan struct{}
}

func newGate(closeAt int) *gate {
	return &gate{
		Host: disk.NewHost("/"), closeAt: closeAt, arrived: make(chan struct{}), passed: make(chan struct{}),
	}
}

func (g *gate) Open(path string) (disk.FS, error) {
	d, err := g.Host.Open(path)
	if err != nil {
		return nil, err
	}
	return gatedFS{d, g}, nil
}

// pass has everything that waits go on, and all after it.
func (g *gate) pass() { close(g.passed) }

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

type gatedFS struct {
	disk.FS
	gate *gate
}

func (d gatedFS) Open(name string) (disk.Handle, error) {
	if strings.HasPrefix(name, disk.StagingDir+"/") {
		d.gate.mu.Lock()
		d.gate.opened++
		waits := d.gate.closeAt > 0 && d.gate.opened >= d.gate.closeAt
		if waits && d.gate.opened == d.gate.closeAt {
			close(d.gate.arrived)
		}
		d.gate.mu.Unlock()
		if waits {
			<-d.gate.passed
		}
	}
	return d.FS.Open(name)
}

// files are how many writeFiles writes, of as many bytes: some 20 batches of a copy.
const files, fileBytes = 80, 128 << 10

// writeFiles writes files of one letter into a volume.
func (n *node) writeFiles(t testing.TB, id string, letter byte) {
	t.Helper()
	for i := range files {
		content := bytes.Repeat([]byte{letter}, fileBytes)
		must(t, os.WriteFile(n.path(id, fmt.Sprint("file", i)), content, 0o640))
	}
}

// hasFiles wants those files, and nothing else, in a directory.
func hasFiles(t *testing.T, dir string, letter byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != files {
		t.Errorf("%s has %d entries: %v", dir, len(entries), err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || len(content) != fileBytes || bytes.Count(content, []byte{letter}) != fileBytes {
			t.Errorf("%s/%s has %d bytes, %d of them %c: %v", dir, e.Name(), len(content),
				bytes.Count(content, []byte{letter}), letter, err)
		}
	}
}

// withFiles is a node on a plain directory, with a volume that has files, and a snapshot of it.
func withFiles(t *testing.T, root string, options ...option) *node {
	t.Helper()
	n := startAt(t, root, options...)
	must(t, sized(t, n, "pvc-1", 16, nil))
	n.writeFiles(t, "pvc-1", 'a')
	must(t, snapshot(t, n, snap1, "pvc-1"))
	return n
}

// TestCopiesByFile: snapshots, restores and clones in a pool whose filesystem makes none.
func TestCopiesByFile(t *testing.T) {
	n := withFiles(t, t.TempDir())
	n.writeFiles(t, "pvc-1", 'b')
	must(t, sized(t, n, "pvc-2", 16, fromSnapshot(snap1)), sized(t, n, "pvc-3", 20, fromVolume("pvc-1")))
	must(t, sized(t, n, "pvc-2", 16, fromSnapshot(snap1)), snapshot(t, n, snap1, "pvc-1")) // again
	hasFiles(t, n.path("pvc-2"), 'a')
	hasFiles(t, n.path("pvc-3"), 'b')
	n.consistent(t, "with copies")
	for id, r := range n.records(t) {
		if r.Source != nil && (!r.Source.Complete || r.Source.From != nil) || r.Kind == store.OfVolume && r.Held != 0 {
			t.Errorf("%s: %+v, %+v", id, r, r.Source)
		}
	}
	must(t, n.Delete(t.Context(), "pvc-1"), n.DeleteSnapshot(t.Context(), snap1))
	n.purgeAll(t)
	hasFiles(t, n.path("pvc-2"), 'a')
	must(t, n.Delete(t.Context(), "pvc-2"), n.Delete(t.Context(), "pvc-3"))
	n.purgeAll(t)
	n.consistent(t, "without copies")
}

// TestCopyOfAMountedVolume: a volume that a pod may write to is not copied file by file, unless the class says so.
func TestCopyOfAMountedVolume(t *testing.T) {
	n := withFiles(t, t.TempDir())
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	wants(t, snapshot(t, n, snap2, "pvc-1"), volume.ErrPublished, "consistency: best-effort")
	wants(t, sized(t, n, "pvc-2", 16, fromVolume("pvc-1")), volume.ErrPublished)
	n.consistent(t, "refused")
	must(t, n.cutWhole(t.Context(), volume.SnapshotSpec{ID: snap2, Volume: "pvc-1", BestEffort: true}),
		n.Unpublish(t.Context(), "pvc-1", target))
	hasFiles(t, n.path(snap2), 'a')
	readOnly := publish("pvc-1", target)
	readOnly.ReadOnly = true
	must(t, n.Publish(t.Context(), readOnly), sized(t, n, "pvc-2", 16, fromVolume("pvc-1")))
	hasFiles(t, n.path("pvc-2"), 'a')
}

// fillUntil begins a copy that waits in the middle, and leaves it there.
func (n *node) fillUntil(t *testing.T, g *gate, fill func(context.Context) error) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- fill(ctx) }()
	<-g.arrived
	leave()
	if err := <-left; err != nil && !errors.Is(err, volume.ErrFilling) {
		t.Fatalf("a copy that is under way: %v", err)
	}
}

func restoring(n *node) func(context.Context) error {
	return func(ctx context.Context) error {
		s := spec("pvc-2")
		s.Bytes, s.Source = 16*mebibyte, fromSnapshot(snap1)
		_, err := n.createWhole(ctx, s)
		return err
	}
}

// halfRestored is a node that waits in the middle of a restore.
func halfRestored(t *testing.T) (root string, n *node, g *gate) {
	t.Helper()
	root, g = t.TempDir(), newGate(12)
	withFiles(t, root)
	n = startAt(t, root, withHost(g))
	must(t, openPool(t.Context(), n))
	n.fillUntil(t, g, restoring(n))
	return root, n, g
}

// TestPodStartsWhileItsVolumeIsCopied: it does not wait, and the copy ends. A copy by best effort goes on.
func TestPodStartsWhileItsVolumeIsCopied(t *testing.T) {
	for _, bestEffort := range []bool{false, true} {
		root := t.TempDir()
		withFiles(t, root)
		g := newGate(8)
		n := startAt(t, root, withHost(g))
		must(t, openPool(t.Context(), n))
		cut := func(ctx context.Context) error {
			return n.cutWhole(ctx, volume.SnapshotSpec{ID: snap2, Volume: "pvc-1", BestEffort: bestEffort})
		}
		n.fillUntil(t, g, cut)
		must(t, n.Publish(t.Context(), publish("pvc-1", target)))
		g.pass()
		n.Wait()
		err := cut(t.Context())
		if bestEffort {
			must(t, err)
			hasFiles(t, n.path(snap2), 'a')
		} else {
			wants(t, err, volume.ErrPublished)
			n.consistent(t, "ended")
		}
	}
}

// TestRestoreGoesOn after a restart of the driver, and does not begin anew.
func TestRestoreGoesOn(t *testing.T) {
	root, n, g := halfRestored(t)
	_, health, err := n.Get(t.Context(), "pvc-2")
	if err != nil || health.Condition != volume.Inaccessible || health.Reason != "Filling" {
		t.Errorf("%+v, %v", health, err)
	}
	wants(t, n.Publish(t.Context(), publish("pvc-2", target)), volume.ErrFilling)
	_, err = n.Expand(t.Context(), "pvc-2", 32*mebibyte, 0)
	wants(t, err, volume.ErrFilling)
	wants(t, n.DeleteSnapshot(t.Context(), snap1), volume.ErrCopied)
	go g.pass()
	n.Wait() // as a driver that ends
	whole := newGate(0)
	n = startAt(t, root, withHost(whole))
	must(t, openPool(t.Context(), n))
	if s := n.status(); s.Promised < 32*mebibyte || s.Volumes != 2 {
		t.Errorf("%+v", s)
	}
	wants(t, n.DeleteSnapshot(t.Context(), snap1), volume.ErrCopied, "pvc-2 is made of "+snap1)
	must(t, restoring(n)(t.Context()))
	hasFiles(t, n.path("pvc-2"), 'a')
	n.consistent(t, "whole")
	must(t, n.DeleteSnapshot(t.Context(), snap1))
	if begun := whole.count(); begun < 5 || begun > 20 {
		t.Errorf("%d batches were written after 11 of some 25", begun)
	}
}

// TestRestoreWithoutAPlace begins anew where nobody understands how far it was.
func TestRestoreWithoutAPlace(t *testing.T) {
	root, n, g := halfRestored(t)
	go g.pass()
	n.Wait()
	path := n.path(store.Path("pvc-2"))
	record, err := os.ReadFile(path)
	must(t, err)
	place := regexp.MustCompile(`"from": "[^"]+"`)
	if !place.Match(record) {
		t.Fatalf("no place in %s", record)
	}
	must(t, os.WriteFile(path, place.ReplaceAll(record, []byte(`"from": "Z2FyYmFnZQ=="`)), 0o600))
	n = startAt(t, root)
	must(t, openPool(t.Context(), n))
	must(t, restoring(n)(t.Context()))
	hasFiles(t, n.path("pvc-2"), 'a')
	n.consistent(t, "begun anew")
}

// TestCopyThatIsTooLargeForAnyDisk has no promise that is less than nothing.
func TestCopyThatIsTooLargeForAnyDisk(t *testing.T) {
	n := withFiles(t, t.TempDir())
	const mebibytes = math.MaxInt64 / mebibyte
	wants(t, sized(t, n, "pvc-2", mebibytes, fromSnapshot(snap1)), volume.ErrOutOfRange)
	wants(t, sized(t, n, "pvc-2", mebibytes, fromVolume("pvc-1")), volume.ErrOutOfRange)
	n.consistent(t, "refused")
}

// TestDeleteOfACopyThatIsMade ends it.
func TestDeleteOfACopyThatIsMade(t *testing.T) {
	_, n, g := halfRestored(t)
	go g.pass()
	must(t, n.Delete(t.Context(), "pvc-2"))
	n.consistent(t, "deleted")
	for _, e := range n.ls(t, disk.TrashDir) {
		if strings.HasPrefix(e, "pvc-2.") {
			_, err := n.Undelete(t.Context(), e)
			wants(t, err, store.ErrUndeletable)
		}
	}
	n.purgeAll(t)
	must(t, restoring(n)(t.Context()))
	hasFiles(t, n.path("pvc-2"), 'a')
}

// TestAbandonIsInterrupted after it has marked the copy: it is asked for again, and is one of its class.
func TestAbandonIsInterrupted(t *testing.T) {
	root, n, g := halfRestored(t)
	go g.pass()
	n.Wait() // as a driver that ends
	d := n.open(t)
	r, err := store.Read(d, "pvc-2")
	must(t, err)
	before := r.OnDelete
	r.OnDelete = store.Purge
	must(t, store.Replace(d, r), d.Close())
	n = startAt(t, root)
	must(t, restoring(n)(t.Context()))
	hasFiles(t, n.path("pvc-2"), 'a')
	if now := n.records(t)["pvc-2"].OnDelete; now != before || before == store.Purge {
		t.Errorf("onDelete is %s, was %s", now, before)
	}
}

// TestCopyThatIsTooLarge is refused, is not tried again, and leaves nothing.
func TestCopyThatIsTooLarge(t *testing.T) {
	n := withFiles(t, t.TempDir())
	must(t, sized(t, n, "pvc-1", 16, nil))
	for i := range 4 { // nothing keeps a volume of a plain directory to its size
		must(t, n.overwrite("pvc-1", byte('a'+i), 8))
		must(t, os.Rename(n.path("pvc-1", "data"), n.path("pvc-1", fmt.Sprint(i))))
	}
	for range 2 {
		wants(t, sized(t, n, "pvc-2", 16, fromVolume("pvc-1")), transfer.ErrTooLarge)
		wants(t, snapshot(t, n, snap2, "pvc-1"), transfer.ErrTooLarge)
		n.consistent(t, "too large")
	}
	entries := len(n.ls(t, disk.TrashDir))
	wants(t, sized(t, n, "pvc-2", 16, fromVolume("pvc-1")), transfer.ErrTooLarge)
	if now := len(n.ls(t, disk.TrashDir)); now != entries {
		t.Errorf("it was tried again: %d entries in the trash, and %d before", now, entries)
	}
	n.clock.advance(2 * time.Hour)
	must(t, os.Remove(n.path("pvc-1", "0")), os.Remove(n.path("pvc-1", "1")), os.Remove(n.path("pvc-1", "2")))
	for i := range files {
		must(t, os.Remove(n.path("pvc-1", fmt.Sprint("file", i))))
	}
	must(t, sized(t, n, "pvc-2", 16, fromVolume("pvc-1")))
}

// TestCopyWithoutARecord: what somebody has left of a copy is never a volume, and does not keep others from the pool.
func TestCopyWithoutARecord(t *testing.T) {
	root, n, g := halfRestored(t)
	go g.pass()
	n.Wait()
	staged := n.path(store.Staged("pvc-2"))
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(staged, fmt.Sprint("small", i)), nil, 0o600),
			os.Mkdir(filepath.Join(staged, fmt.Sprint("dir", i)), 0o700))
	}
	must(t, os.Remove(n.path(store.Path("pvc-2"))))
	n = startAt(t, root)
	must(t, openPool(t.Context(), n))
	wants(t, n.Publish(t.Context(), publish("pvc-2", target)), store.ErrNotFound)
	n.consistent(t, "without the record")
	if !slices.ContainsFunc(n.ls(t, disk.TrashDir), func(e string) bool { return strings.HasPrefix(e, "pvc-2.") }) {
		t.Error("all was removed while others waited for the pool")
	}
	n.purgeAll(t)
	must(t, restoring(n)(t.Context()))
	hasFiles(t, n.path("pvc-2"), 'a')
}

// TestSourceIsAbsentForAWhile: a restore whose source is in a pool that cannot be used waits, and is not thrown away.
func TestSourceIsAbsentForAWhile(t *testing.T) {
	root := t.TempDir()
	withFiles(t, root, twoPools(root))
	g := newGate(12)
	n := startAt(t, root, twoPools(root), withHost(g))
	must(t, n.openPool(t.Context(), "local"), n.openPool(t.Context(), "other"))
	restore := func(ctx context.Context) error {
		s := spec("pvc-2")
		s.Pool, s.Bytes, s.Source = "other", 16*mebibyte, fromSnapshot(snap1)
		_, err := n.createWhole(ctx, s)
		return err
	}
	n.fillUntil(t, g, restore)
	go g.pass()
	n.Wait()
	away := filepath.Join(root, "away")
	must(t, os.Rename(n.specs[0].Path, away))
	n = startAt(t, root, twoPools(root))
	must(t, n.openPool(t.Context(), "other"))
	wants(t, restore(t.Context()), pool.ErrAbsent)
	staged := filepath.Join(root, "other", "csi", store.Staged("pvc-2"))
	if _, err := os.Stat(staged); err != nil {
		t.Errorf("what was copied is gone: %v", err)
	}
	must(t, os.Rename(away, n.specs[0].Path), n.openPool(t.Context(), "local"), restore(t.Context()))
	hasFiles(t, filepath.Join(root, "other", "csi", "pvc-2"), 'a')
}
