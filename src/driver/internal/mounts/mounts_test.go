package mounts

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestLife publishes a directory of a real pool.
func TestLife(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root: it mounts")
	}
	host := t.TempDir()
	if err := unix.Mount("hpp-test", host, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(host, unix.MNT_DETACH) })
	disk := poolfs.NewHost(host)
	if err := disk.Create("/pool"); err != nil {
		t.Fatal(err)
	}
	pool, err := disk.Open("/pool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	if err := pool.Mkdir("pvc-1", 0o777); err != nil {
		t.Fatal(err)
	}
	source, err := pool.Handle("pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	if err := os.MkdirAll(host+"/kubelet/pods", 0o755); err != nil {
		t.Fatal(err)
	}
	m := New(host + "/kubelet")
	target := host + "/kubelet/pods/mount"
	if err := m.Bind(source, target, volume.MountOptions{NoExec: true}); err != nil {
		t.Fatal(err)
	}
	is, err := m.Inspect(target)
	if err != nil || !is.Mounted || is.Dev != source.Dev || is.Ino != source.Ino || !is.NoExec {
		t.Errorf("%+v, %v, want %+v", is, err, source)
	}
	published, err := m.Published()
	if err != nil || len(published["pvc-1"]) != 1 || published["pvc-1"][0] != target {
		t.Errorf("%v, %v, want pvc-1 at %s", published, err, target)
	}
	if err := m.Unmount(target); err != nil {
		t.Error(err)
	}
	if is, err := m.Inspect(target); err != nil || is != (volume.Mount{}) {
		t.Errorf("%+v, %v, want nothing", is, err)
	}
}

// TestOutside checks that a wrong target is the request's mistake, with the field's name.
func TestOutside(t *testing.T) {
	m := New("/var/lib/kubelet")
	_, inspect := m.Inspect("/etc")
	for _, err := range []error{inspect, m.Unmount("/etc"), m.Bind(poolfs.Handle{File: os.Stdin}, "/etc", volume.MountOptions{})} {
		if !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), "target_path") {
			t.Errorf("error %v, want %v naming target_path", err, volume.ErrInvalid)
		}
	}
}

// TestMemory checks that a directory in memory is refused before anything is made.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	if err := New(dir).Bind(poolfs.Handle{Ino: 1}, dir+"/mount", volume.MountOptions{}); !errors.Is(err, errNoFile) {
		t.Errorf("error %v, want %v", err, errNoFile)
	}
}
