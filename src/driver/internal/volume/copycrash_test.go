package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
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
		fillingFromElsewhere(),
		deletingSource(), purgingSource(), undeletingSource(),
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

// fillingFromElsewhere goes on with a restore, of a snapshot on another node, that has begun.
func fillingFromElsewhere() operation {
	dir, broken := "", errors.New("the connection is cut")
	fill := func(ctx context.Context, n *node, most int) error {
		s := spec("pvc-2")
		s.Source, s.Remote = fromSnapshot(snap2), mebibyte
		_, err := n.Create(ctx, s)
		for errors.Is(err, volume.ErrFilling) {
			if err = n.Fill(ctx, s.ID, batchesOf(dir, most, broken)); err == nil {
				_, err = n.Create(ctx, s)
			}
		}
		return err
	}
	prepare := func(t *testing.T, n *node) {
		t.Helper()
		withVolume(t, n)
		dir = t.TempDir()
		for _, name := range []string{"1", "2", "precious"} {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("kept"), 0o600))
		}
		wants(t, fill(t.Context(), n, 3), broken)
	}
	return copying("fill from elsewhere", "pvc-2", prepare, func(ctx context.Context, n *node) error {
		return fill(ctx, n, 1000)
	})
}

// batchesOf are the smallest ones of a directory, and after most of them an error that passes.
func batchesOf(dir string, most int, broken error) volume.Source {
	return func(_ context.Context, from []byte) (func(context.Context) (copytree.Batch, error), error) {
		reader, count := &copytree.Reader{}, 0
		return func(ctx context.Context) (b copytree.Batch, err error) {
			if count++; count > most {
				return b, fmt.Errorf("%w: %w", volume.ErrBusy, broken)
			}
			source, err := os.Open(dir)
			if err != nil {
				return b, err
			}
			defer func() { _ = source.Close() }()
			b, err = reader.Next(ctx, source, from, 1)
			from = b.Next
			return b, err
		}, nil
	}
}

// deletingSource deletes a volume that has a snapshot.
func deletingSource() operation {
	op := deleting()
	op.name, op.prepare = "delete what has a copy", withVolumeAndSnapshot
	return op.withSnapshot()
}

func withSourceDeleted(t *testing.T, n *node) {
	t.Helper()
	withVolumeAndSnapshot(t, n)
	must(t, n.Delete(t.Context(), "pvc-1"))
}

func purgingSource() operation {
	op := purging()
	op.name, op.prepare = "purge what has a copy", withSourceDeleted
	op.again = func(t *testing.T, n *node, about string) {
		t.Helper()
		n.purgeAll(t)
		n.consistent(t, about+", purged")
	}
	return op.withSnapshot()
}

func undeletingSource() operation {
	op := undeleting()
	op.name, op.prepare = "undelete what has a copy", withSourceDeleted
	return op.withSnapshot()
}

// withSnapshot wants the snapshot as it was, besides.
func (op operation) withSnapshot() operation {
	look, again := op.look, op.again
	op.look = func(t *testing.T, n *node, done bool, about string) {
		t.Helper()
		look(t, n, done, about)
		n.kept(t, snap1, about)
	}
	op.again = func(t *testing.T, n *node, about string) {
		t.Helper()
		again(t, n, about)
		n.kept(t, snap1, about+", again")
	}
	return op
}
