package volume_test

import (
	"errors"
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestOnARealDisk goes once through a volume's life on the filesystem of the temporary directory.
func TestOnARealDisk(t *testing.T) {
	root := t.TempDir()
	n := startAt(t, root)
	s := spec("pvc-1")
	s.Mode = 0o750 | os.ModeSetgid
	v, err := n.Create(t.Context(), s)
	must(t, err)
	info, err := os.Stat(n.path(v.ID))
	if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
		t.Errorf("directory: %v, %v; want mode drwxr-s---", info, err)
	}
	if info, err := os.Stat(n.path()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("csi/: %v, %v; want mode 0700", info, err)
	}
	n.fill(t, v.ID)

	again := startAt(t, root)
	must(t, openPool(t.Context(), again))
	if _, health, err := again.Get(t.Context(), v.ID); err != nil || health.Condition != volume.Healthy {
		t.Errorf("after a restart: %+v, %v", health, err)
	}
	must(t, again.Delete(t.Context(), v.ID))
	if _, err := os.Stat(n.path(v.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the delete the directory is still there: %v", err)
	}
	again.purgeAll(t)
}

func benchmarkCreateDelete(b *testing.B, n *node) {
	b.Helper()
	for b.Loop() {
		mustCreate(b, n, "pvc-1")
		must(b, n.Delete(b.Context(), "pvc-1"))
	}
}

func BenchmarkCreateDelete(b *testing.B) { benchmarkCreateDelete(b, startAt(b, b.TempDir())) }
