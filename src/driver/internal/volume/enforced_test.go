package volume_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func required(p *poolspec.Pool) { p.Quota = poolspec.QuotaRequired }

// write appends megabytes to a file, durably, and tells how it ended.
func write(t *testing.T, name string, megabytes int) error {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for range megabytes {
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// create64Mi makes a volume of that size.
func create64Mi(t *testing.T, m *volume.Locked, id string) volume.Volume {
	t.Helper()
	s := spec(id)
	s.Bytes = 64 << 20
	v, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// accounts are the limits on a real pool, by number.
func accounts(t *testing.T, root string) map[uint32]poolfs.Account {
	t.Helper()
	disk, err := poolfs.NewHost("/").Open(filepath.Join(root, "pool"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = disk.Close() }()
	quotas, _ := poolfs.QuotasOf(disk)
	all, err := quotas.Accounts(1, math.MaxUint32)
	if err != nil {
		t.Fatal(err)
	}
	found := map[uint32]poolfs.Account{}
	for _, a := range all {
		found[a.Number] = a
	}
	return found
}

// full tells that a limit was met: btrfs and ext4 say EDQUOT, XFS says ENOSPC of a project.
func full(err error) bool { return errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.ENOSPC) }

// withoutResource does something as root in an ordinary container: without CAP_SYS_RESOURCE, which lets pass on ext4.
func withoutResource(do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with what it lacks
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
		if err == nil {
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// enforcingDisk is a real filesystem with quota.
type enforcingDisk struct {
	mount       func(tb testing.TB) (root string)
	enforcement volume.Enforcement
	more        func(t *testing.T, m *volume.Locked, root, dir string, v volume.Volume)
}

// TestEnforcedOnRealDisks goes once through the life of a volume that cannot hold more than it says.
func TestEnforcedOnRealDisks(t *testing.T) {
	for name, disk := range enforcingDisks() {
		t.Run(name, func(t *testing.T) { enforcedLife(t, name, disk) })
	}
}

func enforcedLife(t *testing.T, name string, disk enforcingDisk) {
	t.Helper()
	root := disk.mount(t)
	m, _ := onDisk(t, root, required)
	s := spec("pvc-1")
	s.Bytes, s.UID, s.GID, s.Mode = 64<<20, 1000, 2000, 0o750|os.ModeSetgid
	v, err := m.Create(t.Context(), s)
	if err != nil || v.Enforcement != disk.enforcement || v.ProjectID == 0 {
		t.Fatalf("create: %+v, %v", v, err)
	}
	dir := filepath.Join(root, "pool", "csi", v.ID)
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
		t.Errorf("directory: %v, %v; want mode drwxr-s---", info, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 1000 || st.Gid != 2000 {
		t.Errorf("the directory's owner is %+v", info.Sys())
	}
	if err := withoutResource(func() error { return write(t, filepath.Join(dir, "a"), 65) }); !full(err) {
		t.Errorf("64 MiB take 65 on %s: %v", name, err)
	}
	if v, err := m.Expand(t.Context(), v.ID, 96<<20, 0); err != nil || v.Bytes != 96<<20 {
		t.Fatalf("expand: %d, %v", v.Bytes, err)
	}
	if err := write(t, filepath.Join(dir, "b"), 16); err != nil {
		t.Errorf("after the expansion: %v", err)
	}
	disk.more(t, m, root, dir, v)

	again, set := onDisk(t, root, required)
	if _, health, err := again.Get(t.Context(), v.ID); err != nil || health.Condition != volume.Healthy {
		t.Errorf("after a restart: %+v, %v", health, err)
	}
	if err := again.Delete(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	purgeAll(t, set, root, "pvc-*") // a pattern: whatever there is
	for number, left := range accounts(t, root) {
		if number < 1<<30 {
			continue // not the driver's
		}
		t.Errorf("a limit is left: %+v", left)
	}
}
