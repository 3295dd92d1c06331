//go:build !vm

package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// enforcedDisks are those that an ordinary kernel has.
func enforcedDisks() map[string]enforcedDisk {
	return map[string]enforcedDisk{
		"btrfs": {
			mount: btrfsDisk, enforcement: quota.Strict, place: subvolume, more: checkNested, copies: copyOperations(),
		},
	}
}

// btrfsDisk mounts a new btrfs of 2 GiB.
func btrfsDisk(tb testing.TB) string {
	tb.Helper()
	return mounttest.Disk(tb, "btrfs", 2<<30)
}

// subvolume makes a subvolume, as an admin does who restores a volume.
func subvolume(tb testing.TB, path string) {
	tb.Helper()
	mounttest.Run(tb, "btrfs", "-q", "subvolume", "create", path)
}

// checkNested makes a subvolume inside a volume: it counts to the volume, and no limit that somebody clears stays so.
func checkNested(t *testing.T, n *node, dir string, v volume.Volume) {
	t.Helper()
	subvolume(t, filepath.Join(dir, "nested"))
	top, err := os.Open(dir)
	must(t, err)
	defer func() { _ = top.Close() }()
	if err := write(filepath.Join(dir, "nested", "c"), 40); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("a nested subvolume escapes: %v", err)
	}
	must(t, btrfs.SetQgroupLimit(top, btrfs.NewQgroupID(1, uint64(v.QuotaID)), 0))
	must(t, n.Publish(t.Context(), publish(v.ID, target)))
	if got := n.limits(t)[v.QuotaID]; got != 96*mebibyte {
		t.Errorf("after a publish the limit is %d", got)
	}
	mounttest.Run(t, "btrfs", "filesystem", "sync", dir) // brings the counts up to date
	stats, err := n.Stats(t.Context(), v.ID, target)
	if err != nil || stats.Bytes != 96*mebibyte || stats.BytesUsed < 79*mebibyte ||
		stats.BytesUsed+stats.BytesAvailable != stats.Bytes || stats.Inodes != 0 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	must(t, n.Unpublish(t.Context(), v.ID, target))
}
