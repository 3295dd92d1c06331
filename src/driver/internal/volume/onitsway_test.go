package volume_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// inState gives a node with a volume that was taken, as a driver has left it that was killed in the middle.
func inState(t *testing.T, change func(*store.Record)) (n *node, from string) {
	t.Helper()
	root := t.TempDir()
	from = oldAt(t, filepath.Join(root, "old", "pvc-1"))
	n = startAt(t, root)
	must(t, openPool(t.Context(), n))
	_, err := n.TakeDirectory(t.Context(), taking(from))
	must(t, err)
	csi := n.open(t)
	r, err := store.Read(csi, "pvc-1")
	must(t, err)
	change(&r)
	must(t, store.Replace(csi, r), csi.Close())
	n = startAt(t, root)
	must(t, openPool(t.Context(), n))
	return n, from
}

// TestOnItsWay: each operation on a volume whose files are being counted, that goes back to where it was taken from, or
// that is being moved to another node.
func TestOnItsWay(t *testing.T) {
	states := []func(*store.Record){
		func(r *store.Record) { r.Enforcing = true },
		func(r *store.Record) { r.Returning = true },
		func(r *store.Record) { r.Leaving = new(leave("b", "m1")) },
	}
	for i, want := range [3]error{nil, volume.ErrBusy, volume.ErrLeaving} {
		n, from := inState(t, states[i])
		if _, err := n.TakeDirectory(t.Context(), taking(from)); !errors.Is(err, want) {
			t.Errorf("take in state %d: %v, want %v", i, err, want)
		}
	}
	type op func(context.Context, *node) error
	for name, test := range map[string]struct {
		do   op
		want [3]error // of the states, nil where it is done
	}{
		"publish": {
			func(ctx context.Context, n *node) error { return n.Publish(ctx, publish("pvc-1", target)) },
			[3]error{volume.ErrEnforcing, volume.ErrEnforcing, volume.ErrLeaving},
		},
		"leave": {func(ctx context.Context, n *node) error {
			_, _, err := n.Leave(ctx, "pvc-1", leave("c", "m2"), false)
			return err
		}, [3]error{volume.ErrEnforcing, volume.ErrEnforcing, volume.ErrLeaving}},
		"return": {returnTaken, [3]error{nil, nil, volume.ErrLeaving}},
		"grow": {func(ctx context.Context, n *node) error {
			_, err := n.Expand(ctx, "pvc-1", 128*mebibyte, 0)
			return err
		}, [3]error{volume.ErrEnforcing, volume.ErrEnforcing, volume.ErrLeaving}},
		"snapshot": {func(ctx context.Context, n *node) error {
			return n.cutWhole(ctx, volume.SnapshotSpec{ID: snap1, Volume: "pvc-1"})
		}, [3]error{volume.ErrEnforcing, volume.ErrEnforcing, volume.ErrLeaving}},
		"clone": {func(ctx context.Context, n *node) error {
			s := spec("pvc-2")
			s.Bytes, s.Source = 64*mebibyte, fromVolume("pvc-1")
			_, err := n.Create(ctx, s)
			return err
		}, [3]error{volume.ErrEnforcing, volume.ErrEnforcing, volume.ErrLeaving}},
		"enforce": { // this filesystem has no quota
			func(ctx context.Context, n *node) error { return n.Enforce(ctx, "pvc-1", nil, func(int64) {}) },
			[3]error{volume.ErrUnsupported, volume.ErrEnforcing, volume.ErrLeaving},
		},
		"measure": {
			func(ctx context.Context, n *node) error { return n.Measure(ctx, "pvc-1", func(_, _ int64) {}) },
			[3]error{},
		},
		"adopt": {func(ctx context.Context, n *node) error {
			_, err := n.Adopt(ctx, "pvc-1", 0)
			return err
		}, [3]error{nil, volume.ErrEnforcing, nil}},
		"discard": {
			func(ctx context.Context, n *node) error { return n.Discard(ctx, "pvc-1", "", 0) },
			[3]error{nil, volume.ErrEnforcing, volume.ErrLeaving},
		},
		// What comes back from the trash stays, and only has to count again before a pod gets it.
		"undelete": {func(ctx context.Context, n *node) error {
			must(t, n.Delete(ctx, "pvc-1"))
			for _, entry := range n.ls(t, disk.TrashDir) {
				if id, _, ok := store.ParseEntryName(entry); ok && id == "pvc-1" {
					_, err := n.Undelete(ctx, entry)
					must(t, err)
				}
			}
			return n.Publish(ctx, publish("pvc-1", target))
		}, [3]error{volume.ErrEnforcing, nil, nil}},
	} {
		for i, state := range states {
			n, _ := inState(t, state)
			if err := test.do(t.Context(), n); !errors.Is(err, test.want[i]) {
				t.Errorf("%s in state %d: %v, want %v", name, i, err, test.want[i])
			}
		}
	}
}
