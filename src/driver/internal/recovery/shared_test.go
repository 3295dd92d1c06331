package recovery_test

import (
	"log/slog"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

// sharedBy opens a pool as a node sees it, with its own directories.
func sharedBy(t *testing.T, host disk.Host, node string) disk.FS {
	t.Helper()
	d, err := disk.Shared(host, node).Open("/pool")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{disk.MetaDir, disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
		_ = disk.AllNodes(d).Mkdir(dir, 0o700)
		_ = d.Mkdir(dir, 0o700)
	}
	return d
}

// TestANodeGoesOnWhileItsRoomIsCleared: a node that was taken for gone places its record before each call of the node
// that clears its directories. Either it comes too late, or its volume is whole.
func TestANodeGoesOnWhileItsRoomIsCleared(t *testing.T) {
	for step := 1; ; step++ {
		memory := disktest.New()
		memory.AddDir("/pool/csi")
		a := sharedBy(t, memory, "a")
		r := store.Record{Version: store.Version, ID: "pvc-1", Node: "a"}
		if err := store.Prepare(a, r); err != nil {
			t.Fatal(err)
		}
		if err := a.Mkdir(disk.StagingDir+"/pvc-1", 0o777); err != nil {
			t.Fatal(err)
		}
		host := disktest.NewFaulty(memory, 0, nil)
		b := disk.NodeView(sharedBy(t, host, "b"), "a")
		reached, placed := false, false
		host.Before(host.Steps()+step, func() { reached, placed = true, store.Place(a, "pvc-1") == nil })
		_, err := recovery.Run(t.Context(), store.Pool{
			Disk: b, Limits: &limits{}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if !reached {
			if step < 5 {
				t.Errorf("only %d calls were seen", step-1)
			}
			return
		}
		s, _, err := store.Pool{Disk: a}.Look("pvc-1")
		if verdict := s.Verdict(); err != nil || placed != (verdict == store.Healthy || verdict == store.FinishCreate) {
			t.Errorf("step %d: the record was placed: %v, and there is %+v, %v", step, placed, s, err)
		}
	}
}
