package volume_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const (
	snap1 = "snap-1.0123456789"
	snap2 = "snap-2.0123456789"
)

func fromSnapshot(id string) *store.Source { return &store.Source{Kind: store.OfSnapshot, ID: id} }
func fromVolume(id string) *store.Source   { return &store.Source{ID: id} }

// copyOperations are those that make copies and remove them, on a filesystem that has snapshots.
func copyOperations() []operation {
	return []operation{
		copying("snapshot", snap1, withVolume, func(ctx context.Context, n *node) error {
			return n.cutWhole(ctx, volume.SnapshotSpec{ID: snap1, Volume: "pvc-1"})
		}),
		copying("restore", "pvc-2", withVolumeAndSnapshot, func(ctx context.Context, n *node) error {
			s := spec("pvc-2")
			s.Source = fromSnapshot(snap1)
			_, err := n.createWhole(ctx, s)
			return err
		}),
		copying("clone", "pvc-2", withVolume, func(ctx context.Context, n *node) error {
			s := spec("pvc-2")
			s.Source = fromVolume("pvc-1")
			_, err := n.createWhole(ctx, s)
			return err
		}),
		deletingSnapshot(),
	}
}

func withVolumeAndSnapshot(t *testing.T, n *node) {
	t.Helper()
	withVolume(t, n)
	must(t, n.cutWhole(t.Context(), volume.SnapshotSpec{ID: snap1, Volume: "pvc-1"}))
}

// copying wants the source as it was, and the copy whole or not at all.
func copying(
	name, id string, prepare func(*testing.T, *node), run func(context.Context, *node) error,
) operation {
	look := func(t *testing.T, n *node, done bool, about string) {
		t.Helper()
		n.consistent(t, about)
		n.kept(t, "pvc-1", about)
		if r, there := n.records(t)[id]; there && !r.Filling() {
			_ = n.purge(t.Context()) // of what an earlier try has left; that is looked at in the end
			n.kept(t, id, about)
		} else if done {
			t.Errorf("%s: a copy that was answered is gone", about)
		}
	}
	return operation{
		name: name, prepare: prepare, run: run, look: look,
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := run(t.Context(), n); err != nil {
				t.Errorf("%s: again: %v", about, err)
			}
			look(t, n, true, about+", made again")
		},
	}
}

func deletingSnapshot() operation {
	run := func(ctx context.Context, n *node) error { return n.DeleteSnapshot(ctx, snap1) }
	look := func(t *testing.T, n *node, done bool, about string) {
		t.Helper()
		n.consistent(t, about)
		n.kept(t, "pvc-1", about)
		if _, err := n.GetSnapshot(t.Context(), snap1); done && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", about, err)
		}
	}
	return operation{
		name: "delete a snapshot", prepare: withVolumeAndSnapshot, run: run, look: look,
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := run(t.Context(), n); err != nil {
				t.Errorf("%s: deleted again: %v", about, err)
			}
			look(t, n, true, about+", deleted again")
		},
	}
}
