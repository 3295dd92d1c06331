//go:build !vm

package volume_test

import (
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestBtrfsPutBack: a subvolume that was put back by hand counts once it is published. A plain directory does not, and is served all the
// same.
func TestBtrfsPutBack(t *testing.T) {
	for name, test := range map[string]struct {
		make    []string
		counted bool
	}{
		"subvolume": {make: []string{"btrfs", "subvolume", "create"}, counted: true},
		"directory": {make: []string{"mkdir"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := btrfsDisk(t)
			m, _ := onDisk(t, root, required)
			s := spec("pvc-1")
			s.Bytes = 64 << 20
			v, err := m.Create(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(root, "pool", "csi", v.ID)
			run(t, "btrfs", "subvolume", "delete", dir)
			run(t, test.make[0], append(test.make[1:], dir)...)
			if err := write(t, filepath.Join(dir, "a"), 40); err != nil {
				t.Fatal(err)
			}
			if err := m.Publish(t.Context(), volume.PublishRequest{ID: v.ID, Target: target}); err != nil {
				t.Fatal(err)
			}
			run(t, "btrfs", "filesystem", "sync", root) // brings the counts up to date
			if got := accounts(t, root)[v.ProjectID]; got.BytesUsed >= 40<<20 != test.counted {
				t.Errorf("%+v", got)
			}
			if err := write(t, filepath.Join(dir, "b"), 40); full(err) != test.counted {
				t.Errorf("80 MiB in 64: %v", err)
			}
		})
	}
}
