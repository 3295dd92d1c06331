package volume_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func leave(to, move string) store.Leaving { return store.Leaving{To: to, Move: move} }

// mustLeave marks a volume, which has to be marked before or not.
func mustLeave(t *testing.T, n *node, move store.Leaving, marked bool) {
	t.Helper()
	_, before, err := n.Leave(t.Context(), "pvc-1", move, false)
	if err != nil || before != marked {
		t.Fatalf("leave: %v, marked before %v, want %v", err, before, marked)
	}
}

// TestLeave: from then on no pod gets the volume, and nothing of it changes, through restarts too.
func TestLeave(t *testing.T) {
	d := newDisk()
	mounts := newMounts()
	n := start(t, d, withMounts(mounts))
	mustCreate(t, n, "pvc-1")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	mustLeave(t, n, leave("b", "m1"), false)
	mustLeave(t, n, leave("b", "m1"), true)
	n = start(t, d, withMounts(mounts))
	if v, err := n.Moving(t.Context(), "pvc-1"); err != nil || !v.Published || v.Leaving == nil || v.Leaving.To != "b" {
		t.Errorf("%+v, %v", v, err)
	}
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	wants(t, n.Publish(t.Context(), publish("pvc-1", second)), volume.ErrLeaving, "node b", "move claim -n ns --abort")
	_, _, err := n.Leave(t.Context(), "pvc-1", leave("c", "m2"), false)
	wants(t, err, volume.ErrLeaving, "already", "node b")
	_, err = n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	wants(t, err, volume.ErrLeaving, "node b")
	wants(t, snapshot(t, n, snap1, "pvc-1"), volume.ErrLeaving, "node b")
	s := spec("pvc-2")
	s.Source = fromVolume("pvc-1")
	_, err = n.Create(t.Context(), s)
	wants(t, err, volume.ErrLeaving, "node b")
	must(t, n.Unpublish(t.Context(), "pvc-1", target))
	wants(t, n.Publish(t.Context(), publish("pvc-1", target)), volume.ErrLeaving)
	must(t, n.Stay(t.Context(), "pvc-1"), n.Stay(t.Context(), "pvc-1"))
	n = start(t, d, withMounts(mounts))
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	_, err = n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	must(t, err)
}

func TestLeaveIsRefused(t *testing.T) {
	n := startAt(t, t.TempDir())
	must(t, sized(t, n, "pvc-1", 16, nil), sized(t, n, "pvc-2", 16, nil))
	must(t, snapshot(t, n, snap1, "pvc-1"))
	inline := publish("csi-1", target)
	s := spec("csi-1")
	s.Ephemeral, s.OnDelete, inline.Inline = true, store.Purge, &s
	must(t, n.Publish(t.Context(), inline))
	try := func(id string, move store.Leaving, snapshots bool) error {
		_, _, err := n.Leave(t.Context(), id, move, snapshots)
		return err
	}
	wants(t, try("pvc-1", leave("b", "m1"), false), volume.ErrUnsupported, "1 snapshots", "--leave-snapshots")
	wants(t, try("csi-1", leave("b", "m1"), false), volume.ErrUnsupported, "inline")
	wants(t, try("pvc-9", leave("b", "m1"), false), store.ErrNotFound)
	wants(t, try("../x", leave("b", "m1"), false), nodeapi.ErrInvalidID)
	wants(t, try("pvc-2", leave("", "m1"), false), volume.ErrInvalid)
	wants(t, try("pvc-2", leave("b", ""), false), volume.ErrInvalid)
	must(t, try("pvc-1", leave("b", "m1"), true), try("pvc-2", leave("b", "m1"), false))
}

// TestCrashesOfLeave: wherever the machine crashes, what was answered holds, and the next try marks the volume.
func TestCrashesOfLeave(t *testing.T) {
	for step := 1; ; step++ {
		d := newDisk()
		n := warm(t, d)
		mustCreate(t, n, "pvc-1")
		d.CrashAt(step)
		_, _, err := n.Leave(t.Context(), "pvc-1", leave("b", "m1"), false)
		crashed := d.Crashed()
		if !crashed {
			must(t, err)
		}
		n = start(t, d.Crash())
		if !crashed {
			wants(t, n.Publish(t.Context(), publish("pvc-1", target)), volume.ErrLeaving)
			return
		}
		if _, _, err = n.Leave(t.Context(), "pvc-1", leave("b", "m1"), false); err != nil {
			t.Fatalf("after a crash at step %d: %v", step, err)
		}
		wants(t, n.Publish(t.Context(), publish("pvc-1", target)), volume.ErrLeaving)
		n.consistent(t, fmt.Sprint("crashed at ", step))
	}
}

// moved is a volume that is being moved from one node to another.
type moved struct{ from, to *node }

func newMoved(t *testing.T) moved {
	t.Helper()
	m := moved{startAt(t, t.TempDir()), startAt(t, t.TempDir())}
	must(t, sized(t, m.from, "pvc-1", 16, nil))
	m.from.writeFiles(t, "pvc-1", 'a')
	mustLeave(t, m.from, leave("to", "m1"), false)
	return m
}

func (m moved) create(ctx context.Context, move string) error {
	s := spec("pvc-1")
	s.Bytes, s.Source, s.Remote = 16*mebibyte, &store.Source{ID: "pvc-1", Move: move}, 16*mebibyte
	_, err := m.to.Create(ctx, s)
	return err
}

// bring fills the volume as far as before allows, and gives with which batch it began.
func (m moved) bring(ctx context.Context, move string, before func(batch int) error) (from []byte, err error) {
	return cloned(m).fill(ctx, "pvc-1", store.Source{ID: "pvc-1", Move: move}, before)
}

func breaksAt(batch int) func(int) error {
	return func(is int) error {
		if is == batch {
			return fmt.Errorf("%w: the connection broke", volume.ErrBusy)
		}
		return nil
	}
}

// TestMove: what was copied before a break, and a restart of the driver, is not copied again. Then the source goes.
func TestMove(t *testing.T) {
	m := newMoved(t)
	wants(t, m.create(t.Context(), "m1"), volume.ErrFilling)
	from, err := m.bring(t.Context(), "m1", breaksAt(8))
	wants(t, err, volume.ErrBusy)
	if len(from) != 0 {
		t.Errorf("it began at %q", from)
	}
	if v, err := m.to.Moving(t.Context(), "pvc-1"); err != nil || v.Copied == 0 || !v.Filling() {
		t.Errorf("%+v, %v", v, err)
	}
	wants(t, m.create(t.Context(), "m1"), volume.ErrFilling)
	wants(t, m.create(t.Context(), "m2"), volume.ErrExists, "move")
	from, err = m.bring(t.Context(), "m1", undisturbed)
	if err != nil || len(from) == 0 {
		t.Errorf("it goes on at %q: %v", from, err)
	}
	must(t, m.create(t.Context(), "m1"))
	wants(t, m.create(t.Context(), "m2"), volume.ErrExists, "move")
	hasFiles(t, m.to.path("pvc-1"), 'a')
	must(t, m.to.Publish(t.Context(), publish("pvc-1", target)))
	m.to.consistent(t, "moved")
	day := 24 * time.Hour
	wants(t, m.from.Discard(t.Context(), "pvc-1", "", 0), volume.ErrLeaving)
	wants(t, m.from.Discard(t.Context(), "pvc-1", "another", 0), volume.ErrLeaving)
	wants(t, m.from.Discard(t.Context(), "pvc-1", "to", 1000*day), volume.ErrInvalid)
	must(t, m.from.Discard(t.Context(), "pvc-1", "to", 0)) // which keeps it for a day
	m.from.consistent(t, "discarded")
	m.from.clock.advance(23 * time.Hour)
	must(t, m.from.purge(t.Context()))
	if trash := m.from.ls(t, disk.TrashDir); len(trash) != 2 {
		t.Errorf("after 23 h there is %q", trash)
	}
	m.from.purgeAll(t)
}

// TestMovedSourceComesBack from the trash as a volume like any other.
func TestMovedSourceComesBack(t *testing.T) {
	m := newMoved(t)
	must(t, m.from.Discard(t.Context(), "pvc-1", "to", 24*time.Hour))
	trash := slices.DeleteFunc(m.from.ls(t, disk.TrashDir), func(e string) bool { return e == store.SpareName })
	r, err := m.from.Undelete(t.Context(), trash[0])
	if err != nil || r.ID != "pvc-1" {
		t.Fatal(r, err)
	}
	must(t, m.from.Publish(t.Context(), publish("pvc-1", target)), m.from.Unpublish(t.Context(), "pvc-1", target))
	if v, err := m.from.Moving(t.Context(), "pvc-1"); err != nil || v.Leaving != nil || v.Keep != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestEndOfAMove: its copy goes, and what stays can be used.
func TestEndOfAMove(t *testing.T) {
	m := newMoved(t)
	wants(t, m.create(t.Context(), "m1"), volume.ErrFilling)
	_, err := m.bring(t.Context(), "m1", func(batch int) error {
		if batch == 8 {
			wants(t, m.from.Delete(t.Context(), "pvc-1"), volume.ErrCopied)
			must(t, m.from.Stay(t.Context(), "pvc-1"))
		}
		return nil
	})
	wants(t, err, volume.ErrSource, "pvc-1 stays here")
	must(t, m.to.Delete(t.Context(), "pvc-1"))
	m.to.purgeAll(t)
	m.to.consistent(t, "aborted")
	must(t, m.from.Publish(t.Context(), publish("pvc-1", target)))
	wants(t, m.create(t.Context(), "m1"), volume.ErrSource, "pvc-1 stays here")
	wants(t, m.create(t.Context(), "m2"), volume.ErrFilling)
	_, err = m.bring(t.Context(), "m2", undisturbed)
	wants(t, err, volume.ErrSource, "not being moved any more")
}
