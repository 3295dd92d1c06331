//go:build !vm

package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// quickBtrfs mounts a new btrfs of 2 GiB that commits every second, which is when it begins to free what was removed.
func quickBtrfs(tb testing.TB) string {
	tb.Helper()
	return mounttest.Disk(tb, "btrfs", 2<<30, "commit=1")
}

// held is what a volume's record holds for copies, in mebibytes, rounded down.
func (n *node) held(t reporter, id string) int64 { t.Helper(); return n.records(t)[id].Held / mebibyte }

// released waits until nothing is held for copies that are gone.
func (n *node) released(t *testing.T, id string, want int64) {
	t.Helper()
	for range attempts {
		must(t, n.ReleaseHeld(t.Context()))
		if n.held(t, id) <= want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s holds %d MiB, want %d", id, n.held(t, id), want)
}

// TestSnapshotCostsItsSourceNoRoom: a pod overwrites all that a snapshot keeps, whatever restarts meanwhile.
func TestSnapshotCostsItsSourceNoRoom(t *testing.T) {
	root := quickBtrfs(t)
	n := startAt(t, root, required)
	must(t, sized(t, n, "pvc-1", 64, nil), n.overwrite("pvc-1", 'a', 40), snapshot(t, n, snap1, "pvc-1"))
	if held := n.held(t, "pvc-1"); held < 40 || held > 41 {
		t.Errorf("%d MiB are held for a snapshot of 40", held)
	}
	n.consistent(t, "with a snapshot")
	n = startAt(t, root, required)
	must(t, openPool(t.Context(), n), n.Publish(t.Context(), publish("pvc-1", target)))
	must(t, n.overwrite("pvc-1", 'b', 60))
	mounttest.Run(t, "btrfs", "filesystem", "sync", root) // brings the counts up to date
	s, err := n.Stats(t.Context(), "pvc-1", target)
	if err != nil || s.Bytes != 64*mebibyte || s.BytesUsed != s.Bytes || s.BytesAvailable > 5*mebibyte {
		t.Errorf("stats: %+v, %v", s, err)
	}
	must(t, n.Unpublish(t.Context(), "pvc-1", target))
	if _, err := n.Expand(t.Context(), "pvc-1", 72*mebibyte, 0); err != nil {
		t.Error(err)
	}
	n.consistent(t, "overwritten and expanded")
	if err := write(n.path("pvc-1", "more"), 16); !full(err) {
		t.Errorf("72 MiB take 76: %v", err)
	}
	must(t, os.Remove(n.path("pvc-1", "more")))

	must(t, sized(t, n, "pvc-2", 64, fromSnapshot(snap1)))
	n.has(t, snap1, 'a', 40)
	n.has(t, "pvc-2", 'a', 40)
	must(t, n.overwrite("pvc-2", 'c', 60))
	n.has(t, "pvc-1", 'b', 60)
	n.has(t, snap1, 'a', 40)

	must(t, n.DeleteSnapshot(t.Context(), snap1), n.DeleteSnapshot(t.Context(), snap1))
	n.purgeAll(t)
	must(t, n.ReleaseHeld(t.Context()))
	if held := n.held(t, "pvc-1"); held < 40 {
		t.Errorf("%d MiB are held for the restored volume", held)
	}
	must(t, n.Delete(t.Context(), "pvc-2"))
	n.purgeAll(t)
	n.released(t, "pvc-1", 0)
	n.consistent(t, "without copies")
	n.has(t, "pvc-1", 'b', 60)
	must(t, n.Delete(t.Context(), "pvc-1"))
	n.purgeAll(t)
	n.unlimited(t)
}

// TestCloneOutlivesAll: source and snapshot go, clones of clones stay as they are, and nothing is left in the end.
func TestCloneOutlivesAll(t *testing.T) {
	n := startAt(t, quickBtrfs(t), required)
	must(t, sized(t, n, "pvc-1", 64, nil), n.overwrite("pvc-1", 'a', 40), snapshot(t, n, snap1, "pvc-1"),
		sized(t, n, "pvc-2", 80, fromSnapshot(snap1)), n.overwrite("pvc-2", 'b', 20),
		snapshot(t, n, snap2, "pvc-2"), sized(t, n, "pvc-3", 80, fromVolume("pvc-2")))
	must(t, n.Delete(t.Context(), "pvc-1"), n.DeleteSnapshot(t.Context(), snap1))
	n.purgeAll(t)
	n.consistent(t, "without the first")
	must(t, n.overwrite("pvc-2", 'c', 79))
	if err := sized(t, n, "pvc-4", 80, fromSnapshot(snap1)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a volume of a snapshot that is gone: %v", err)
	}
	must(t, n.Delete(t.Context(), "pvc-2"))
	n.purgeAll(t)
	data, err := os.ReadFile(n.path("pvc-3", "data"))
	if err != nil || len(data) != 40*mebibyte || data[0] != 'b' || data[len(data)-1] != 'a' {
		t.Errorf("the clone has %d bytes: %v", len(data), err)
	}
	must(t, n.DeleteSnapshot(t.Context(), snap2), n.Delete(t.Context(), "pvc-3"))
	n.purgeAll(t)
	n.unlimited(t)
}

// rewrite replaces the content of 120 files of a mebibyte each. btrfs keeps an extent until all of it is overwritten:
// one large file in their place would be refused with and without snapshots.
func (n *node) rewrite(id string, letter byte) error {
	for i := range 120 {
		content := bytes.Repeat([]byte{letter}, mebibyte)
		if err := os.WriteFile(n.path(id, fmt.Sprint("file", i)), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TestSnapshotsWhileAPodWrites: a volume that is nearly full is overwritten all the time, while snapshots are made. The
// pool has no room for many of them. The pod gets no error, as it gets none without snapshots.
func TestSnapshotsWhileAPodWrites(t *testing.T) {
	n := startAt(t, quickBtrfs(t), required)
	must(t, sized(t, n, "pvc-1", 128, nil))
	for range 3 {
		must(t, n.rewrite("pvc-1", 'a'))
	}
	stop, wrote := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for letter := byte('a'); err == nil; letter++ {
			err = n.rewrite("pvc-1", letter)
			select {
			case <-stop:
				wrote <- err
				return
			default:
			}
		}
		wrote <- err
	}()
	made, refused := 0, 0
	for i := 0; refused < 2 && i < 1000; i++ {
		err := snapshot(t, n, fmt.Sprintf("snap-%d.0123456789", i), "pvc-1")
		switch {
		case err == nil:
			made++
		case errors.Is(err, ledger.ErrNoSpace):
			refused++
		default:
			t.Error(err)
		}
	}
	close(stop)
	if err := <-wrote; err != nil || made < 2 || refused < 2 {
		t.Errorf("%d snapshots were made, %d refused; the pod: %v", made, refused, err)
	}
	n.consistent(t, "after all")
}

// TestBadCopies: each is refused, and nothing of it is left.
func TestBadCopies(t *testing.T) {
	root := quickBtrfs(t)
	n := startAt(t, root, twoPools(root), required)
	must(t, n.openPool(t.Context(), "local"), n.openPool(t.Context(), "other"))
	must(t, sized(t, n, "pvc-1", 64, nil), sized(t, n, "pvc-2", 64, nil), snapshot(t, n, snap1, "pvc-1"),
		snapshot(t, n, snap1, "pvc-1"))
	for name, test := range map[string]struct{ err, want error }{
		"of another volume":         {snapshot(t, n, snap1, "pvc-2"), volume.ErrExists},
		"of no volume":              {snapshot(t, n, snap2, "pvc-9"), store.ErrNotFound},
		"of a snapshot":             {snapshot(t, n, snap2, snap1), store.ErrNotFound},
		"smaller than the snapshot": {sized(t, n, "pvc-9", 63, fromSnapshot(snap1)), volume.ErrOutOfRange},
		"smaller than the volume":   {sized(t, n, "pvc-9", 63, fromVolume("pvc-1")), volume.ErrOutOfRange},
		"of itself":                 {sized(t, n, "pvc-9", 64, fromVolume("pvc-9")), volume.ErrInvalid},
		"of a volume as a snapshot": {sized(t, n, "pvc-9", 64, fromSnapshot("pvc-1")), store.ErrNotFound},
		"of a snapshot as a volume": {sized(t, n, "pvc-9", 64, fromVolume(snap1)), store.ErrNotFound},
		"larger than the pool":      {sized(t, n, "pvc-9", 1<<20, fromSnapshot(snap1)), ledger.ErrNoSpace},
		"there with another source": {sized(t, n, "pvc-1", 64, fromSnapshot(snap1)), volume.ErrExists},
		"a path":                    {snapshot(t, n, "../x", "pvc-1"), nodeapi.ErrInvalidID},
		"of a path":                 {sized(t, n, "pvc-9", 64, fromSnapshot("../x")), nodeapi.ErrInvalidID},
		"deleted as a volume":       {n.Delete(t.Context(), snap1), nil},
		"a volume deleted as one":   {n.DeleteSnapshot(t.Context(), "pvc-1"), nil},
		"one that was never there":  {n.DeleteSnapshot(t.Context(), snap2), nil},
		"published":                 {n.Publish(t.Context(), publish(snap1, target)), store.ErrNotFound},
		"expanded":                  {expanded(t, n, snap1), store.ErrNotFound},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", name, test.err, test.want)
		}
	}
	n.consistent(t, "after all")
	ids := slices.Sorted(maps.Keys(n.records(t)))
	if !slices.Equal(ids, []string{"pvc-1", "pvc-2", snap1}) {
		t.Errorf("records of %v", ids)
	}
}

func expanded(t testing.TB, n *node, id string) error {
	t.Helper()
	_, err := n.Expand(t.Context(), id, 1<<30, 0)
	return err
}

// TestSnapshotBesideAnAbsentPool: where a snapshot would be is where its volume is, whatever other disks are away.
func TestSnapshotBesideAnAbsentPool(t *testing.T) {
	root := quickBtrfs(t)
	n := startAt(t, root, twoPools(root), required)
	must(t, n.openPool(t.Context(), "local"), n.openPool(t.Context(), "other"), sized(t, n, "pvc-1", 1, nil))
	must(t, os.Remove(filepath.Join(root, "other", "csi", disk.MarkerFile)))
	if err := n.openPool(t.Context(), "other"); !errors.Is(err, pool.ErrAbsent) {
		t.Fatalf("the other pool: %v", err)
	}
	must(t, snapshot(t, n, snap1, "pvc-1"), snapshot(t, n, snap1, "pvc-1"))
}
