package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// mountDisk mounts a new filesystem at a path until the test is over.
func mountDisk(t *testing.T, path, kind string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	mounttest.Image(t, image, kind, 512<<20)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	mounttest.Loop(t, image, path)
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) }) // the driver may have it open: it ends later
}

// Numbers of the calls of fsfreeze(8): _IOWR('X', 119, int) and _IOWR('X', 120, int) of linux/fs.h.
const (
	freezeFS = 0xc0045877
	thawFS   = 0xc0045878
)

// freeze keeps everybody from writing to a filesystem, and who tries hangs, until thaw is called or the test is over.
func freeze(t *testing.T, path string) (thaw func()) {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(dir.Fd()), freezeFS, 0); err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw = func() {
		if !frozen {
			return
		}
		frozen = false
		if err := unix.IoctlSetInt(int(dir.Fd()), thawFS, 0); err != nil {
			t.Errorf("thaw %s: %v", path, err)
		}
		_ = dir.Close()
	}
	t.Cleanup(thaw) // before the machine's, which waits for the process
	return thaw
}

// seen is how long ago each pool's disk was looked at, by what `driver status` says.
func (m *machine) seen(t *testing.T) map[string]time.Duration {
	t.Helper()
	out, err := m.run(t, "status", "-o", "json", "--state-dir="+m.path("state"))
	var s nodeapi.Status
	if err != nil || json.Unmarshal([]byte(out), &s) != nil {
		t.Fatalf("status: %v: %s", err, out)
	}
	ages := map[string]time.Duration{}
	for _, p := range s.Pools {
		ages[p.Name] = time.Since(p.Seen)
	}
	return ages
}

// goroutines are those of the driver.
func (m *machine) goroutines(t *testing.T) (n int) {
	t.Helper()
	_, body := m.get(t, "/metrics")
	for line := range strings.Lines(body) {
		if _, err := fmt.Sscanf(line, "go_goroutines %d", &n); err == nil {
			return n
		}
	}
	t.Fatal("/metrics lacks go_goroutines")
	return 0
}

// TestAPoolThatHangs: its disk answers nobody who writes, and its watcher hangs in a purge. Everybody else is answered
// while that lasts, and no call leaves anything behind. After a while the pool counts as full.
func TestAPoolThatHangs(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: local, path: $POOL}, {name: stuck, path: $POOL.stuck}]")
	mountDisk(t, m.path("pool.stuck"), "ext4")
	controller, node := m.start(t)
	request := &pb.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &pb.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*pb.VolumeCapability{writer()},
		Parameters:         map[string]string{"storagePool": "stuck", "onDelete": "purge"},
	}
	if _, err := controller.CreateVolume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 { // two seconds at the rate of a purge: it is not over before the disk is frozen
		writeFile(t, m.path(fmt.Sprintf("pool.stuck/csi/pvc-1/%d", i)), "")
	}
	capacity := func(pool string) int64 {
		long, cancel := context.WithTimeout(t.Context(), time.Minute) // one that waits for the disk would never end
		defer cancel()
		request := &pb.GetCapacityRequest{Parameters: map[string]string{"storagePool": pool}}
		got, err := controller.GetCapacity(long, request)
		if err != nil {
			t.Fatalf("capacity of %s: %v", pool, err)
		}
		return got.GetAvailableCapacity()
	}
	waittest.Until(t, "both pools are there", func() bool { return capacity("local") > 0 && capacity("stuck") > 0 })
	if _, err := controller.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: "pvc-1"}); err != nil {
		t.Fatal(err)
	}
	thaw := freeze(t, m.path("pool.stuck"))
	waittest.Until(t, "the watcher hangs", func() bool { return m.seen(t)["stuck"] > 6*time.Second })
	askAll := func() {
		if ages := m.seen(t); ages["local"] >= ages["stuck"] {
			t.Errorf("the other pool is not looked at any more: %v", ages)
		}
		for _, path := range []string{"/healthz", "/metrics"} {
			if code, body := m.get(t, path); code != http.StatusOK {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		capacity("stuck") // which is answered, whatever it is by now
		if capacity("local") == 0 {
			t.Error("the other pool has no capacity")
		}
		if _, err := node.NodeGetStorageHealth(t.Context(), &pb.NodeGetStorageHealthRequest{}); err != nil {
			t.Error(err)
		}
	}
	askAll()
	before := m.goroutines(t)
	for range 20 {
		askAll()
	}
	if after := m.goroutines(t); after > before+3 {
		t.Errorf("%d goroutines, and %d before 20 rounds of questions", after, before)
	}
	request.Name, request.Parameters = "pvc-2", map[string]string{"storagePool": "local"}
	if _, err := controller.CreateVolume(t.Context(), request); err != nil {
		t.Errorf("create in the other pool: %v", err)
	}
	waittest.Until(t, "nothing more is placed there", func() bool { return capacity("stuck") == 0 })
	thaw()
	waittest.Until(t, "the pool is looked at again", func() bool { return m.seen(t)["stuck"] < 5*time.Second })
	waittest.Until(t, "volumes are placed there again", func() bool { return capacity("stuck") > 0 })
}

// TestStartWithAPoolThatHangs: it cannot even be recovered.
func TestStartWithAPoolThatHangs(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: local, path: $POOL}, {name: stuck, path: $POOL.stuck}]")
	mountDisk(t, m.path("pool.stuck"), "ext4")
	m.start(t)
	waittest.Until(t, "the pool is used", func() bool {
		_, err := os.Stat(m.path("pool.stuck/csi/.hpp/pool.json"))
		return err == nil
	})
	if err := m.stop(t, os.Interrupt); err != nil {
		t.Fatal(err)
	}
	thaw := freeze(t, m.path("pool.stuck"))
	controller, _ := m.start(t)
	create := func(pool string) error {
		brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := controller.CreateVolume(brief, &pb.CreateVolumeRequest{
			Name: "pvc-" + pool, CapacityRange: &pb.CapacityRange{RequiredBytes: 1 << 20},
			VolumeCapabilities: []*pb.VolumeCapability{writer()}, Parameters: map[string]string{"storagePool": pool},
		})
		return err
	}
	waittest.Until(t, "the other pool is there", func() bool { return create("local") == nil })
	if err := create("stuck"); err == nil {
		t.Error("made a volume on a frozen disk")
	}
	if _, ok := m.seen(t)["stuck"]; !ok {
		t.Error("the pool is not in the status")
	}
	if _, body := m.get(t, "/metrics"); !strings.Contains(body, `hpp_pool_present{pool="stuck"} 0`) {
		t.Error("the pool is not called absent")
	}
	thaw()
	waittest.Until(t, "the pool is there", func() bool { return create("stuck") == nil })
}
