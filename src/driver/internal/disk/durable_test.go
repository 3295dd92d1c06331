package disk_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestJournaled: ext2 is ext4 without a journal to the kernel, and btrfs writes what was synced ahead of the rest.
func TestJournaled(t *testing.T) {
	requireRoot(t)
	for kind, want := range map[string]bool{"ext4": true, "ext2": false, "xfs": true, "btrfs": false, "tmpfs": false} {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			if kind == "tmpfs" {
				mounttest.Tmpfs(t, root, "")
			} else {
				root = mounttest.Disk(t, kind, 512<<20)
			}
			d, err := disk.NewHost(root).OpenDir("/")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }() // nothing was written through it
			if got := disk.Journaled(d); got != want {
				t.Errorf("%t, want %t", got, want)
			}
		})
	}
}
