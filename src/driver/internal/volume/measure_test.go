package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestMeasure: a published volume is measured, without anybody being kept from it meanwhile.
func TestMeasure(t *testing.T) {
	n := startAt(t, t.TempDir())
	mustCreate(t, n, "pvc-1")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	must(t, os.WriteFile(n.path("pvc-1", "data"), make([]byte, 200_000), 0o600))
	must(t, os.Mkdir(n.path("pvc-1", "dir"), 0o700))
	must(t, os.Link(n.path("pvc-1", "data"), filepath.Join(n.path("pvc-1", "dir"), "again")))
	var files, bytes int64
	err := n.Measure(t.Context(), "pvc-1", func(f, b int64) {
		files, bytes = f, b
		if err := n.Measure(t.Context(), "pvc-1", nil); !errors.Is(err, volume.ErrBusy) {
			t.Errorf("twice at once: %v", err)
		}
		if _, err := n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0); err != nil {
			t.Errorf("expand meanwhile: %v", err)
		}
	})
	if err != nil || files != 3 || bytes < 200_000 || bytes > 300_000 {
		t.Errorf("%d files, %d bytes, %v", files, bytes, err)
	}
	wants(t, n.Measure(t.Context(), "pvc-2", nil), store.ErrNotFound, "pvc-2")
	must(t, os.RemoveAll(n.path("pvc-1")))
	wants(t, n.Measure(t.Context(), "pvc-1", nil), volume.ErrLost, "pvc-1")
}

// TestMeasureInSlices: the pool is open for a moment at a time, each slice counts something, and the end of its context
// ends it.
func TestMeasureInSlices(t *testing.T) {
	n := startAt(t, t.TempDir())
	mustCreate(t, n, "pvc-1")
	for _, name := range []string{"a", "b", "c", "d"} {
		must(t, os.WriteFile(n.path("pvc-1", name), nil, 0o600))
	}
	n.clock.each = 75 * time.Millisecond
	slices, files := 0, int64(0)
	must(t, n.Measure(t.Context(), "pvc-1", func(f, _ int64) {
		if f <= files {
			t.Errorf("%d files after %d", f, files)
		}
		files = f
		slices++
	}))
	if files != 5 || slices < 2 {
		t.Errorf("%d files in %d slices", files, slices)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := n.Measure(ctx, "pvc-1", func(int64, int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
