//go:build !vm

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

// TestSnapshotDuringARelease: whenever it is made, what it keeps is held.
func TestSnapshotDuringARelease(t *testing.T) {
	for step := 1; ; step++ {
		root := quickBtrfs(t)
		n := startAt(t, root, required)
		must(t, sized(t, n, "pvc-1", 8, nil), n.overwrite("pvc-1", 'a', 4))
		n.holds(t, "pvc-1", mebibyte) // of a copy that is gone

		host := disktest.NewFaulty(disk.NewHost("/"), 0, nil)
		n = startAt(t, root, required, withHost(host))
		must(t, openPool(t.Context(), n))
		begun, made := host.Steps(), error(nil)
		host.Before(begun+step, func() { // asked once: the release may have the volume until this returns
			_, made = n.Snapshot(t.Context(), volume.SnapshotSpec{ID: snap1, Volume: "pvc-1"})
		})
		must(t, n.ReleaseHeld(t.Context()))
		if host.Steps() < begun+step {
			atLeast(t, step-1, 5)
			return
		}
		if made != nil && !errors.Is(made, volume.ErrBusy) {
			t.Error(made)
		}
		all := n.records(t)
		if keeps := pinnedIn(all, all["pvc-1"].QuotaID); all["pvc-1"].Held < keeps {
			t.Errorf("step %d: %d bytes are held for a snapshot that keeps %d", step, all["pvc-1"].Held, keeps)
		}
		n.consistent(t, fmt.Sprint("step ", step))
	}
}

// holds writes into a volume's record what it holds for copies.
func (n *node) holds(t *testing.T, id string, bytes int64) {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	r, err := store.Read(d, id)
	r.Held = bytes
	must(t, err, store.Replace(d, r))
}

// TestCopiesAtOnce: clients ask for everything about the same few volumes and snapshots at once, while what is gone is
// purged, and what was held for it released.
func TestCopiesAtOnce(t *testing.T) {
	n := startAt(t, quickBtrfs(t), required)
	must(t, openPool(t.Context(), n))
	stop := make(chan struct{})
	var clients, workers sync.WaitGroup
	for client := range uint64(6) {
		clients.Go(func() { n.askAtRandom(t, rand.New(rand.NewPCG(client, 0)), 150) })
	}
	for _, work := range []func(context.Context) error{n.ReleaseHeld, n.purge} {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					if err := work(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	workers.Wait()
	n.tidy(t, n.specs[0], "at the end")
	n.mounts.at = map[string]bindmount.Mount{}
	n.deleteAll(t)
	n.purgeAll(t)
	n.consistent(t, "without any")
}

// askAtRandom asks for so many things, of which some cannot be.
func (n *node) askAtRandom(t *testing.T, rng *rand.Rand, times int) {
	t.Helper()
	for range times {
		err := pick(rng, n.questions(t, rng))()
		refused := slices.ContainsFunc([]error{
			nil, volume.ErrBusy, store.ErrNotFound, volume.ErrExists, volume.ErrPublished, volume.ErrInvalid,
			volume.ErrOutOfRange, fs.ErrNotExist,
		}, func(refusal error) bool { return errors.Is(err, refusal) })
		if !refused {
			t.Error(err)
		}
	}
}

// questions are about a volume, another one and a snapshot.
func (n *node) questions(t *testing.T, rng *rand.Rand) []func() error {
	t.Helper()
	ctx := t.Context()
	id, other := fmt.Sprintf("pvc-%d", rng.IntN(3)), fmt.Sprintf("pvc-%d", rng.IntN(3))
	snap := fmt.Sprintf("snap-%d.0123456789", rng.IntN(3))
	at := fmt.Sprintf("/kubelet/pods/%d/volumes/kubernetes.io~csi/%s/mount", rng.IntN(2), id)
	return []func() error{
		func() error { return sized(t, n, id, 16, nil) },
		func() error { return sized(t, n, id, 16, fromVolume(other)) },
		func() error { return sized(t, n, id, 16, fromSnapshot(snap)) },
		func() error { return snapshot(t, n, snap, id) },
		func() error { return n.overwrite(id, 'a', 1+rng.IntN(4)) },
		func() error { return n.Delete(ctx, id) },
		func() error { return n.DeleteSnapshot(ctx, snap) },
		func() error { return n.Publish(ctx, publish(id, at)) },
		func() error { return n.Unpublish(ctx, id, at) },
		func() error { _, err := n.Expand(ctx, id, 17*mebibyte, 0); return err },
		func() error { return n.Enforce(ctx, id, nil, func(int64) {}) },
		func() error { _, err := n.GetSnapshot(ctx, snap); return err },
	}
}
