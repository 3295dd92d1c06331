package volume_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// driver is a manager over a pool in a real directory, unmounted volumes apart.
type driver struct {
	*volume.Locked
	set     *pool.Set
	cluster *cluster
	events  *events
}

// host is where a driver runs.
type host struct {
	state, path string // the state directory, and the pool's
	log         *slog.Logger
	now         func() time.Time
}

// onDisk is a driver whose log and events nobody reads.
func onDisk(tb testing.TB, root string, options ...func(*poolspec.Pool)) (*volume.Locked, *pool.Set) {
	tb.Helper()
	return onDiskAt(tb, root, time.Now, options...)
}

// onDiskAt is onDisk with a clock.
func onDiskAt(tb testing.TB, root string, now func() time.Time, options ...func(*poolspec.Pool)) (*volume.Locked, *pool.Set) {
	tb.Helper()
	h := host{state: filepath.Join(root, "state"), path: filepath.Join(root, "pool"), log: slog.New(slog.DiscardHandler), now: now}
	d := h.start(tb, options...)
	return d.Locked, d.set
}

func (h host) start(tb testing.TB, options ...func(*poolspec.Pool)) driver {
	tb.Helper()
	if err := os.MkdirAll(h.state, 0o700); err != nil {
		tb.Fatal(err)
	}
	dir, err := poolfs.OpenDir(h.state)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = dir.Close() })
	spec := poolspec.Pool{Name: "local", Path: h.path}
	for _, o := range options {
		o(&spec)
	}
	bin := trash.Bin{Now: h.now}
	d := driver{cluster: &cluster{}, events: &events{}}
	d.set, err = pool.New(pool.Config{
		Specs: []poolspec.Pool{spec}, Disk: poolfs.NewHost("/"), State: dir,
		Cluster: d.cluster, Events: d.events, Purger: trash.NewPurger(bin), Log: h.log, Now: h.now,
	})
	if err != nil {
		tb.Fatal(err)
	}
	m, err := volume.New(volume.Config{
		Pools: d.set, Records: store.Files{}, Bin: bin, Mounter: newMounts(), Cluster: d.cluster, Log: h.log, Now: h.now,
	})
	if err != nil {
		tb.Fatal(err)
	}
	d.set.Use(m)
	d.Locked = volume.NewLocked(m)
	return d
}

// TestOnARealDisk goes once through a volume's life on the filesystem of the temporary directory.
func TestOnARealDisk(t *testing.T) {
	root := t.TempDir()
	m, _ := onDisk(t, root)
	s := spec("pvc-1")
	s.Mode = 0o750 | os.ModeSetgid
	v, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "pool", "csi", v.ID)
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
		t.Errorf("directory: %v, %v; want mode drwxr-s---", info, err)
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("csi/: %v, %v; want mode 0700", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}

	again, set := onDisk(t, root)
	if _, health, err := again.Get(t.Context(), v.ID); err != nil || health.Condition != volume.Healthy {
		t.Errorf("after a restart: %+v, %v", health, err)
	}
	if err := again.Delete(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the delete the directory is still there: %v", err)
	}
	purgeAll(t, set, root, v.ID)
}

// purgeAll works off the trash until nothing of a volume is in it any more.
func purgeAll(t *testing.T, set *pool.Set, root, id string) {
	t.Helper()
	// One does, but XFS frees removed files in the background, and the purger waits before it looks at what is still counted again.
	const attempts = 6000
	p := poolOf(t, set)
	checked(t, set)
	for range attempts {
		if len(trashOf(t, root, id)) == 0 {
			return
		}
		if p.Purge(t.Context()); len(trashOf(t, root, id)) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Fatalf("%d attempts have left in the trash: %v", attempts, trashOf(t, root, id))
}

// trashOf lists a volume's entries in the trash.
func trashOf(t *testing.T, root, id string) []string {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(root, "pool", "csi", poolfs.TrashDir, id+".*"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func BenchmarkCreateDelete(b *testing.B) {
	m, _ := onDisk(b, b.TempDir())
	for b.Loop() {
		if _, err := m.Create(b.Context(), spec("pvc-1")); err != nil {
			b.Fatal(err)
		}
		if err := m.Delete(b.Context(), "pvc-1"); err != nil {
			b.Fatal(err)
		}
	}
}
