package volume_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// putBack replaces pvc-1 by a copy, as cp -a makes one: two directories, two files and a link, which count nowhere.
func putBack(t *testing.T, disk *memfs.Disk) {
	t.Helper()
	withVolume(t, disk)
	dir := poolPath + "/csi/pvc-1"
	disk.ReplaceByEmpty(dir)
	disk.AddFile(dir+"/precious", []byte("kept"))
	disk.AddFile(dir+"/a/b/file", []byte("12345"))
	disk.Symlink(dir+"/a/link", "b")
}

// publishing is the operation on such a volume, which must never leave it half counted.
func publishing() operation {
	return operation{
		name: "publish", prepare: putBack,
		run: func(ctx context.Context, n *node) error {
			return n.Publish(ctx, volume.PublishRequest{ID: "pvc-1", Target: target})
		},
		check: func(t *testing.T, n *node, _ bool, about string) {
			t.Helper()
			if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
				t.Errorf("%s: %v", about, err)
			}
			disk := n.open(t)
			defer func() { _ = disk.Close() }()
			quotas, _ := poolfs.QuotasOf(disk)
			if a, err := quotas.Account(n.records(t)["pvc-1"].ProjectID); err != nil || a.InodesUsed != 5 || a.BytesUsed != 9 {
				t.Errorf("%s: %+v, %v; want 5 inodes and 9 bytes", about, a, err)
			}
			n.consistent(t, about)
		},
	}
}

// TestVolumeThatWasPutBack counts all that is in it once it is published, whenever the driver or the machine dies meanwhile.
func TestVolumeThatWasPutBack(t *testing.T) {
	fresh := func() *memfs.Disk { return quotaDisk(t, poolfs.QuotaProject) }
	if steps := crashEverywhere(t, publishing(), fresh, 0); steps != 6 {
		t.Errorf("%d steps, want one for each of four names, a sync, and the directory itself", steps)
	}

	disk := fresh()
	putBack(t, disk)
	n := warm(t, disk)
	if s := n.set.Status()[0]; s.Refused > 0 || s.Lost > 0 {
		t.Errorf("before it is published: %+v", s)
	}
	publishing().check(t, n, true, "published")
	pool := n.open(t)
	defer func() { _ = pool.Close() }()
	if err := pool.Rename("pvc-1/precious", "pvc-1/a/precious"); err != nil {
		t.Errorf("rename inside: %v", err)
	}
	calls := disk.Calls()
	publishing().check(t, n, true, "published again")
	if disk.Calls() != calls {
		t.Errorf("published again, it does %v", disk.Trace()[calls:])
	}
	if told := strings.Join(n.cluster.told, "; "); strings.Contains(told, "VolumeOverLimit") {
		t.Errorf("it is not over its limit: %s", told)
	}
}

func TestVolumeThatWasPutBackTooLarge(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	putBack(t, disk)
	disk.AddFile(poolPath+"/csi/pvc-1/large", make([]byte, 2<<20))
	n := warm(t, disk)
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Fatal(err)
	}
	if told := strings.Join(n.cluster.told, "; "); !strings.Contains(told, "ns/claim VolumeOverLimit") || !strings.Contains(told, "2097161 bytes") {
		t.Errorf("the claim was told %q", told)
	}
	pool := n.open(t)
	defer func() { _ = pool.Close() }()
	if err := pool.WriteFile("pvc-1/more", []byte("1"), 0o600); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("one more byte: %v", err)
	}
	if err := errors.Join(pool.Remove("pvc-1/large"), pool.WriteFile("pvc-1/more", []byte("1"), 0o600)); err != nil {
		t.Errorf("after a removal: %v", err)
	}
}

// TestUncountablePutBack: the pod does not start on a volume that would count in part, and does where the cause is gone.
func TestUncountablePutBack(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	putBack(t, disk)
	n := warm(t, disk)
	disk.FailAt(3, syscall.EPERM)
	err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target})
	wants(t, err, volume.ErrNotCounted, "csi/pvc-1", "remove the cause")
	if mount, err := n.mounts.Inspect(target); err != nil || mount.Mounted {
		t.Errorf("it was mounted all the same: %+v, %v", mount, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	err = n.Manager.Publish(gone, volume.PublishRequest{ID: "pvc-1", Target: target})
	if !errors.Is(err, context.Canceled) || errors.Is(err, volume.ErrNotCounted) {
		t.Errorf("a caller that is gone: %v", err)
	}
	publishing().check(t, n, true, "tried again")
}

// replaced says what somebody does to csi/ while a volume is counted, and how the publish ends that had the count made.
type replaced struct {
	by   func(disk *memfs.Disk, pool poolfs.FS, quotas poolfs.Quotas, number uint32) error
	want error
	says string
}

// replacements are all with which something is wrong, and two with which nothing is.
func replacements() map[string]replaced {
	const dir = poolPath + "/csi/pvc-1"
	return map[string]replaced{
		"nothing": {by: func(*memfs.Disk, poolfs.FS, poolfs.Quotas, uint32) error { return nil }},
		"another limit": {by: func(_ *memfs.Disk, _ poolfs.FS, quotas poolfs.Quotas, number uint32) error {
			return quotas.SetLimit(number, poolfs.Limit{Bytes: 8 << 20})
		}},
		"removed": {
			by: func(_ *memfs.Disk, pool poolfs.FS, _ poolfs.Quotas, _ uint32) error {
				return pool.Rename("pvc-1", "elsewhere")
			},
			want: volume.ErrLost, says: "csi/pvc-1",
		},
		"a file": {
			by: func(_ *memfs.Disk, pool poolfs.FS, _ poolfs.Quotas, _ uint32) error {
				return errors.Join(pool.Rename("pvc-1", "elsewhere"), pool.WriteFile("pvc-1", nil, 0o600))
			},
			want: volume.ErrBroken, says: "no directory",
		},
		"one that counts elsewhere": {
			by: func(disk *memfs.Disk, _ poolfs.FS, quotas poolfs.Quotas, _ uint32) error {
				disk.ReplaceByEmpty(dir)
				return quotas.Count("pvc-1", 4711)
			},
			want: volume.ErrBroken, says: "4711",
		},
		"one that counts nowhere": {
			by: func(disk *memfs.Disk, _ poolfs.FS, _ poolfs.Quotas, _ uint32) error {
				disk.ReplaceByEmpty(dir)
				return nil
			},
			want: volume.ErrBusy, says: "try again",
		},
		"one that counts, with the old one mounted": {
			by: func(disk *memfs.Disk, _ poolfs.FS, quotas poolfs.Quotas, number uint32) error {
				disk.ReplaceByEmpty(dir)
				return quotas.Count("pvc-1", number)
			},
			want: volume.ErrTargetTaken, says: target,
		},
	}
}

// TestReplacedWhileItIsCounted: what has come into a volume's place meanwhile is looked at as the first was.
func TestReplacedWhileItIsCounted(t *testing.T) {
	for name, test := range replacements() {
		t.Run(name, func(t *testing.T) {
			disk := quotaDisk(t, poolfs.QuotaProject)
			putBack(t, disk)
			disk.AddFile(poolPath+"/csi/pvc-1/large", make([]byte, 2<<20)) // so that the claim hears that the count is done
			n := warm(t, disk)
			number := n.records(t)["pvc-1"].ProjectID
			pool := n.open(t)
			defer func() { _ = pool.Close() }()
			quotas, _ := poolfs.QuotasOf(pool)
			if info, err := pool.Stat("pvc-1"); strings.Contains(name, "mounted") {
				n.mounts.at[target] = volume.Mount{Mounted: err == nil, Dev: info.Dev, Ino: info.Ino}
			}
			n.cluster.heard = func() {
				n.cluster.heard = nil
				if err := test.by(disk, pool, quotas, number); err != nil {
					t.Error(err)
				}
			}
			err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target})
			if n.cluster.heard != nil {
				t.Fatalf("the claim heard nothing: %v", err)
			}
			if test.want != nil {
				wants(t, err, test.want, test.says)
			} else if a, limitErr := quotas.Account(number); err != nil || limitErr != nil || a.Limit.Bytes != 1<<20 {
				t.Errorf("%v; the account is %+v, %v", err, a, limitErr)
			}
			if !errors.Is(test.want, volume.ErrBusy) {
				return
			}
			if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
				t.Errorf("tried again: %v", err)
			}
		})
	}
}
