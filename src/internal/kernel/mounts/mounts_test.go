package mounts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

func table(t *testing.T, text string) Table {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestAt goes the way of the kernel: what is hidden is not found, and of several mounts at one place it is the last.
func TestAt(t *testing.T) {
	mounted := table(t, `1 1 0:1 / / rw - rootfs none rw
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:2 / /var rw - ext4 /dev/sda2 rw
22 21 0:40 / /var/lib/kubelet rw - tmpfs none rw
30 20 0:50 / /ceph/old rw - ceph hidden:/ rw
31 20 0:51 / /ceph rw - ceph first:/ rw
33 31 0:53 / /ceph rw - ceph second:/ rw
32 33 0:52 /sub /ceph/pvs/special rw - nfs server:/ rw
40 20 0:60 / /cephfs rw - ceph other:/ rw
41 20 0:61 / /with\040space rw - tmpfs none rw
`)
	for path, want := range map[string]int{
		"/": 20, "/etc/hosts": 20, "/var": 21, "/var/lib": 21, "/var/lib/kubelet/pods": 22, "/ceph": 33,
		"/ceph/old": 33,
		"/ceph/pvs": 33, "/ceph/pvs/special": 32, "/ceph/pvs/special/x": 32, "/cephfs": 40, "/cephfsx": 20,
		"/with space/x": 41,
	} {
		if at := mounted.At(path); at == nil || at.ID != want {
			t.Errorf("%s: %+v, want mount %d", path, at, want)
		}
	}
	if at := (Table{}).At("/"); at != nil {
		t.Errorf("an empty table has %+v", at)
	}
	if !mounted.Has(mounted[4]) || (Table{}).Has(mounted[4]) || mounted[:4].Has(mounted[4]) {
		t.Error("Has is wrong about a filesystem")
	}
}

// TestOf finds the mount of a directory that was opened before another filesystem came over it. Needs root.
func TestOf(t *testing.T) {
	path := t.TempDir()
	before, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	mounttest.Tmpfs(t, path, "")
	after, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	mounted, err := Read(Self)
	if err != nil {
		t.Fatal(err)
	}
	was, err := mounted.Of(before)
	if err != nil {
		t.Fatal(err)
	}
	is, err := mounted.Of(after)
	if err != nil {
		t.Fatal(err)
	}
	if was == nil || is == nil || Same(was, is) || is.Mountpoint != path || is != mounted.At(path) ||
		was != mounted.At(filepath.Dir(path)) {
		t.Errorf("before %+v, after %+v", was, is)
	}
	if none, err := (Table{}).Of(after); none != nil || err != nil {
		t.Errorf("in an empty table: %+v, %v", none, err)
	}
}

func TestBelow(t *testing.T) {
	for _, test := range []struct {
		path, directory string
		want            bool
	}{
		{"/a", "/", true},
		{"/", "/", true},
		{"/a/b", "/a", true},
		{"/a", "/a", true},
		{"/ab", "/a", false},
		{"/", "/a", false},
	} {
		if got := Below(test.path, test.directory); got != test.want {
			t.Errorf("%s below %s: %t", test.path, test.directory, got)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	if _, err := Read(path); !os.IsNotExist(err) {
		t.Errorf("error %v, want that there is none", err)
	}
	if err := os.WriteFile(path, []byte("no table\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("a file that is no table was read")
	}
}
