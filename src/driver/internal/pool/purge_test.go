package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// discard deletes a volume, as the volume manager does.
func (n *node) discard(t *testing.T, pool, id string) {
	t.Helper()
	must(t, n.Use(t.Context(), pool, func(o *Open) error {
		r, err := store.Read(o.Disk, id)
		if err == nil {
			err = o.Discard(r, n.clock.Now())
		}
		o.Ledger.Drop(id)
		return err
	}))
}

// inTrash are the ids in a pool's trash, sorted.
func (n *node) inTrash(t *testing.T, pool string) (ids []string) {
	t.Helper()
	must(t, n.Use(t.Context(), pool, func(o *Open) error {
		entries, troubles, err := store.TrashEntries(o.Disk, "")
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return errors.Join(append(troubles, err)...)
	}))
	slices.Sort(ids)
	return ids
}

// dig makes a chain of directories below one.
func dig(t *testing.T, top string, depth int) {
	t.Helper()
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, "x", 0o700))
		next, err := unix.Openat(fd, "x", unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, errors.Join(err, unix.Close(fd)))
		fd = next
	}
	must(t, unix.Close(fd))
}

// TestADeepTreeIsPurged, as a pod can make it: in a number of slices that follows from its depth, while the pool is
// checked and used, and others' deleted volumes get their turn.
func TestADeepTreeIsPurged(t *testing.T) {
	t.Parallel()
	const (
		depth = 50_000
		// A slice has 250 steps at least. A removal goes 62 directories down and up again in some 130 steps, and loses
		// less than that at the end of a slice.
		most = depth/62*130/(250-130) + 1
	)
	spec := local()
	spec.Quota = poolspec.QuotaNone
	root := t.TempDir()
	// A filesystem of the kernel's whose speed is not that of a disk; package disk tests such trees on the host's disk.
	mounttest.Tmpfs(t, root, "size=1g")
	// No pool is first used on one: this one has been.
	must(t, os.MkdirAll(filepath.Join(root, "pool/csi/.hpp"), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "pool/csi/.hpp/pool.json"), []byte(`{"version":2,"id":"AAAA"}`), 0o600))
	n := onMachine(t, root, spec)
	for _, id := range []string{"pvc-1", "pvc-2", "pvc-3"} {
		n.volume(t, "local", store.Record{ID: id})
	}
	p := n.pools[0]
	dig(t, filepath.Join(root, "pool/csi/pvc-2"), depth)
	n.discard(t, "local", "pvc-2")
	slice := 1
	for ; p.Purge(t.Context()); slice++ {
		if slice == 1 {
			n.discard(t, "local", "pvc-1")
			n.discard(t, "local", "pvc-3")
		}
		if left := n.inTrash(t, "local"); slice == 3 && !slices.Equal(left, []string{"pvc-2"}) {
			t.Errorf("after three slices %v are in the trash", left)
		}
		n.clock.pass(interval)
		p.Check(t.Context())
		if s := n.status(t, "local"); !s.Served() || s.Reason != "" || !s.Seen.Equal(n.clock.Now()) ||
			s.TrashEntries == 0 {
			t.Fatalf("slice %d: %+v", slice, s)
		}
		if slice > most {
			t.Fatalf("%d slices, want no more than %d", slice, most)
		}
	}
	t.Logf("%d slices, at most %d", slice, most)
	if left := n.inTrash(t, "local"); len(left) > 0 || n.status(t, "local").TrashEntries != 0 {
		t.Errorf("%v are in the trash, %+v", left, n.status(t, "local"))
	}
	if left, err := os.ReadDir(filepath.Join(root, "pool/csi", disk.TrashDir)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v; want the spare directory", left, err)
	}
}

// TestTrashGivesWayToARefusedRequest where the pool says purgeWhenFull.
func TestTrashGivesWayToARefusedRequest(t *testing.T) {
	spec := local()
	spec.Trash = poolspec.Trash{Retention: poolspec.Duration(time.Hour), PurgeWhenFull: true}
	n := start(t, spec)
	n.check(t)
	for _, id := range []string{"pvc-2", "pvc-1"} {
		n.volume(t, "local", store.Record{ID: id, OnDelete: store.Trash})
		n.discard(t, "local", id)
		n.clock.pass(time.Second)
	}
	wants := func(about string, ids ...string) {
		t.Helper()
		n.pools[0].Purge(t.Context())
		if got := n.inTrash(t, "local"); !slices.Equal(got, ids) || n.status(t, "local").TrashEntries != len(ids) {
			t.Errorf("%s: %v, %+v; want %v", about, got, n.status(t, "local"), ids)
		}
	}
	wants("there is room", "pvc-1", "pvc-2")
	refuse := func(bytes int64) {
		t.Helper()
		must(t, n.Use(t.Context(), "local", func(o *Open) error {
			full := disk.Space{Size: 8192, Used: 8192}
			if _, err := o.Ledger.Reserve("pvc-3", bytes, full); !errors.Is(err, ledger.ErrNoSpace) {
				t.Errorf("reserve: %v", err)
			}
			return nil
		}))
	}
	refuse(1 << 50)
	wants("a request that could never fit was refused", "pvc-1", "pvc-2")
	refuse(4096)
	wants("a request was refused", "pvc-1")
	wants("no other was", "pvc-1")
}

// TestRun looks at every pool, purges, and ends with its context.
func TestRun(t *testing.T) {
	n := start(t, local(), other())
	n.check(t)
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	n.discard(t, "local", "pvc-1")
	again := restart(t, n.memory, local(), other())
	changed := again.Changed()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); again.Run(ctx) }()
	for !again.status(t, "local").Served() || !again.status(t, "other").Served() {
		<-changed
	}
	cancel()
	<-done
	again.pools[0].Purge(t.Context())
	if left := again.inTrash(t, "local"); len(left) > 0 || again.memory.Opened() != again.opened {
		t.Errorf("in the trash: %v; %d directories are open", left, again.memory.Opened()-again.opened)
	}
}

// TestNoPurgeBeginsWhileTheTrashIsKept: what is seen of an entry then stays so until it is brought back.
func TestNoPurgeBeginsWhileTheTrashIsKept(t *testing.T) {
	n := start(t, local())
	n.check(t)
	n.volume(t, "local", store.Record{ID: "pvc-1", OnDelete: store.Purge})
	n.discard(t, "local", "pvc-1")
	var purge sync.WaitGroup
	must(t, n.Use(t.Context(), "local", func(o *Open) error {
		defer o.KeepTrash()()
		purge.Go(func() { n.pools[0].Purge(t.Context()) })
		time.Sleep(50 * time.Millisecond) // in which it would begin
		entries, err := store.ListTrash(o.Disk)
		must(t, err)
		e, err := store.LookAtTrash(o.Disk, entries[0].Name)
		if err != nil || e.Purging {
			t.Errorf("%+v, %v", e, err)
		}
		_, err = o.Undelete(e)
		return errors.Join(err, store.RemoveEmptied(o.Disk, e))
	}))
	purge.Wait()
	must(t, n.Use(t.Context(), "local", func(o *Open) error {
		_, there, err := store.Directory(o.Disk, "pvc-1")
		if !there || len(n.inTrash(t, "local")) > 0 {
			t.Errorf("back %v, the trash has %v", there, n.inTrash(t, "local"))
		}
		return err
	}))
}
