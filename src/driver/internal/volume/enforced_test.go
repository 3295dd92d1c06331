package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// enforcedDisk is a real filesystem with quota.
type enforcedDisk struct {
	mount       func(tb testing.TB) (root string)
	enforcement quota.Enforcement
	// place makes an empty directory that can be a volume, and counts to nothing.
	place func(tb testing.TB, path string)
	// more looks at a volume of 96 MiB in which some 80 are used.
	more func(t *testing.T, n *node, dir string, v volume.Volume)
	// copies are the operations that only filesystems with snapshots have.
	copies []operation
}

// onEnforcedDisks runs a test on each of them.
func onEnforcedDisks(t *testing.T, test func(t *testing.T, d enforcedDisk, root string)) {
	t.Helper()
	for name, d := range enforcedDisks() {
		t.Run(name, func(t *testing.T) { test(t, d, d.mount(t)) })
	}
}

// required makes quota required in every pool.
func required(s *setup) {
	for i := range s.specs {
		s.specs[i].Quota = poolspec.QuotaRequired
	}
}

// write appends megabytes to a file, durably.
func write(name string, megabytes int) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for range megabytes {
		if _, err := f.Write(make([]byte, mebibyte)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// full reports that a limit was met: btrfs and ext4 say EDQUOT, XFS says ENOSPC of a project.
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

// path is that of something in csi/ of the node's first pool.
func (n *node) path(names ...string) string {
	return filepath.Join(append([]string{n.specs[0].Path, "csi"}, names...)...)
}

// attempts are how often something is looked at that a filesystem does in the background, a hundredth of a second
// apart.
const attempts = 6000

// purgeAll works off the trash of every pool until it is empty, limits too.
func (n *node) purgeAll(t *testing.T) {
	t.Helper()
	n.clock.advance(2 * time.Hour)
	var left []string
	var err error
	for range attempts {
		err = n.purge(t.Context())
		if left = n.trash(t); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d attempts have left in the trash: %v (%v)", attempts, left, err)
}

// trash is what waits for its purge, in all pools.
func (n *node) trash(t *testing.T) (entries []string) {
	t.Helper()
	for _, s := range n.specs {
		d := n.openAt(t, s.Path)
		for _, name := range list(t, d, disk.TrashDir) {
			if name != ".spare" {
				entries = append(entries, s.Name+"/"+name)
			}
		}
		must(t, d.Close())
	}
	return entries
}

// TestEnforcedOnRealDisks goes once through the life of a volume that cannot have more in it than it says.
func TestEnforcedOnRealDisks(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, d enforcedDisk, root string) {
		n := startAt(t, root, required)
		s := spec("pvc-1")
		s.Bytes, s.UID, s.GID, s.Mode = 64*mebibyte, 1000, 2000, 0o750|os.ModeSetgid
		v, err := n.Create(t.Context(), s)
		if err != nil || v.Enforcement != d.enforcement || v.QuotaID == 0 {
			t.Fatalf("create: %+v, %v", v, err)
		}
		dir := n.path(v.ID)
		info, err := os.Stat(dir)
		if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
			t.Errorf("directory: %v, %v; want mode drwxr-s---", info, err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 1000 || st.Gid != 2000 {
			t.Errorf("the directory's owner is %+v", info.Sys())
		}
		if err := withoutResource(func() error { return write(filepath.Join(dir, "a"), 65) }); !full(err) {
			t.Errorf("64 MiB take 65: %v", err)
		}
		if v, err := n.Expand(t.Context(), v.ID, 96*mebibyte, 0); err != nil || v.Bytes != 96*mebibyte {
			t.Fatalf("expand: %d, %v", v.Bytes, err)
		}
		if err := write(filepath.Join(dir, "b"), 16); err != nil {
			t.Errorf("after the expansion: %v", err)
		}
		d.more(t, n, dir, v)
		must(t, n.Each(t.Context(), func(s nodeapi.VolumeStatus) error {
			if s.Used < 64*mebibyte || s.Used > 96*mebibyte || s.Enforcement != string(d.enforcement) {
				t.Errorf("listed as %+v, want what it uses", s)
			}
			return nil
		}))

		again := startAt(t, root, required)
		must(t, openPool(t.Context(), again))
		if _, health, err := again.Get(t.Context(), v.ID); err != nil || health.Condition != volume.Healthy {
			t.Errorf("after a restart: %+v, %v", health, err)
		}
		must(t, again.Delete(t.Context(), v.ID))
		again.undeleted(t, d.enforcement)
		must(t, again.Delete(t.Context(), v.ID))
		again.purgeAll(t)
		again.unlimited(t)
	})
}

// undeleted brings pvc-1 of 96 MiB back, in which some 80 are used, and wants it to be as it was.
func (n *node) undeleted(t *testing.T, want quota.Enforcement) {
	t.Helper()
	r, err := n.Undelete(t.Context(), n.entries(t, "pvc-1")[0])
	must(t, err)
	n.consistent(t, "undeleted")
	v, health, err := n.Get(t.Context(), r.ID)
	if err != nil || v.Enforcement != want || health.Condition != volume.Healthy || v.Bytes != 96*mebibyte {
		t.Errorf("undeleted: %+v, %+v, %v", v, health, err)
	}
	if limit := n.limits(t)[r.QuotaID]; limit != 96*mebibyte {
		t.Errorf("undeleted: its limit is %d", limit)
	}
	if err := withoutResource(func() error { return write(n.path(r.ID, "c"), 33) }); !full(err) {
		t.Errorf("undeleted: 96 MiB take 80 and 33 more: %v", err)
	}
}

// unlimited wants no limit of a volume on the filesystem.
func (n *node) unlimited(t *testing.T) {
	t.Helper()
	if left := n.limits(t); len(left) > 0 {
		t.Errorf("limits are left: %v", left)
	}
}

// restored replaces a volume's directory by one that counts to nothing, with the same file in it.
func (d enforcedDisk) restored(t *testing.T, n *node, id string) {
	t.Helper()
	old := n.path("restored." + id)
	must(t, os.Rename(n.path(id), old))
	d.place(t, n.path(id))
	must(t, os.CopyFS(n.path(id), os.DirFS(old)), os.RemoveAll(old))
}

// TestEnforcedAgain: a directory that was restored is published and not enforced, until an admin says so.
func TestEnforcedAgain(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, d enforcedDisk, root string) {
		n := startAt(t, root, required)
		mustCreate(t, n, "pvc-1")
		n.fill(t, "pvc-1")
		d.restored(t, n, "pvc-1")
		must(t, n.Publish(t.Context(), publish("pvc-1", target)), n.Unpublish(t.Context(), "pvc-1", target))
		if !n.warned("VolumeNotEnforced", "pvc-1") {
			t.Errorf("published since it was restored: %+v", n.status())
		}
		n = startAt(t, root, required)
		must(t, openPool(t.Context(), n))
		if s := n.status(); s.Uncounted != 1 || !n.warned("VolumeNotEnforced", "pvc-1") {
			t.Errorf("%+v", s)
		}
		must(t, n.Publish(t.Context(), publish("pvc-1", target)))
		wants(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}), volume.ErrPublished, target)
		must(t, n.Unpublish(t.Context(), "pvc-1", target))
		_, err := n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
		wants(t, err, volume.ErrNotEnforced, "kubectl hpp enforce pvc-1")
		v, health, err := n.Get(t.Context(), "pvc-1")
		if err != nil || v.Enforcement != quota.None || health.Condition != volume.Degraded {
			t.Errorf("%+v, %+v, %v", v, health, err)
		}
		must(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}))
		if v, health, err := n.Get(t.Context(), "pvc-1"); err != nil || v.Enforcement != d.enforcement ||
			health.Condition != volume.Healthy {
			t.Errorf("enforced: %+v, %+v, %v", v, health, err)
		}
		n.kept(t, "pvc-1", "enforced")
		n.consistent(t, "enforced")
		if err := withoutResource(func() error { return write(n.path("pvc-1", "b"), 2) }); !full(err) {
			t.Errorf("1 MiB takes 2: %v", err)
		}
		must(t, n.Delete(t.Context(), "pvc-1"))
		n.purgeAll(t)
		n.unlimited(t)
	})
}
