package volume_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func inline(id string) volume.PublishRequest {
	s := spec(id)
	s.Ephemeral, s.OnDelete = true, store.Purge
	q := publish(id, target)
	q.Inline = &s
	return q
}

func publishingInline() operation {
	return operation{
		name: "publish inline", fleeting: true,
		prepare: func(*testing.T, *node) {},
		run:     func(ctx context.Context, n *node) error { return n.Publish(ctx, inline("pvc-1")) },
		look: func(t *testing.T, n *node, done bool, about string) {
			t.Helper()
			n.consistent(t, about)
			if v, _, err := n.Get(t.Context(), "pvc-1"); done && (err != nil || !v.Ephemeral) {
				t.Errorf("%s: the volume of a pod that was started is gone: %+v, %v", about, v, err)
			}
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := n.Publish(t.Context(), inline("pvc-1")); err != nil {
				t.Errorf("%s: publish again: %v", about, err)
			}
			if mount, _ := n.mounts.Inspect(target); !mount.Mounted {
				t.Errorf("%s: nothing is mounted", about)
			}
			n.consistent(t, about+", published again")
			if err := n.Unpublish(t.Context(), "pvc-1", target); err != nil {
				t.Errorf("%s: unpublish: %v", about, err)
			}
			n.gone(t, about+", unpublished")
		},
	}
}

func unpublishingInline() operation {
	run := func(ctx context.Context, n *node) error { return n.Unpublish(ctx, "pvc-1", target) }
	return operation{
		name: "unpublish inline", run: run, finishes: true,
		prepare: func(t *testing.T, n *node) {
			t.Helper()
			must(t, n.Publish(t.Context(), inline("pvc-1")))
			n.fill(t, "pvc-1")
		},
		look: lookDeleted,
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := run(t.Context(), n); err != nil {
				t.Errorf("%s: unpublish again: %v", about, err)
			}
			n.gone(t, about+", unpublished again")
			inTrashOnly(t, n, about+", unpublished again")
		},
	}
}

// gone wants no volume pvc-1, nor a mount of it.
func (n *node) gone(t *testing.T, about string) {
	t.Helper()
	n.consistent(t, about)
	if _, _, err := n.Get(t.Context(), "pvc-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%s: the volume: %v", about, err)
	}
	if mount, _ := n.mounts.Inspect(target); mount.Mounted {
		t.Errorf("%s: it is mounted", about)
	}
}

// forgetting a pool whose disk is away. The disk, which comes back later, has to be forgotten for again, and serves.
func forgetting() operation {
	run := func(ctx context.Context, n *node) error {
		err := n.set.Forget(ctx, "local")
		if errors.Is(err, pool.ErrPresent) { // it was forgotten, and what is there was taken into use
			return nil
		}
		return err
	}
	return operation{
		name: "pool forget", run: run, absent: true, cluster: []string{"pvc-1"},
		prepare: func(t *testing.T, n *node) {
			t.Helper()
			withVolume(t, n)
			n.disk.ReplaceByEmpty(poolPath)
		},
		look: func(t *testing.T, n *node, done bool, about string) {
			t.Helper()
			if err := openPool(t.Context(), n); done && err != nil {
				t.Errorf("%s: the pool was forgotten and cannot be used: %v", about, err)
			}
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			must(t, run(t.Context(), n), openPool(t.Context(), n))
			n.disk.PutBack(poolPath)
			wants(t, openPool(t.Context(), n), pool.ErrAbsent, "kubectl hpp pool forget local")
			must(t, n.set.Forget(t.Context(), "local"), openPool(t.Context(), n))
			n.consistent(t, about+", put back")
			n.kept(t, "pvc-1", about+", put back")
		},
	}
}
