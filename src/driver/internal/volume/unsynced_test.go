//go:build !vm

package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestCopyThatCannotBeWritten: the kernel says once that data is not on the disk, and such a copy never becomes whole.
func TestCopyThatCannotBeWritten(t *testing.T) {
	below, root := t.TempDir(), t.TempDir()
	mounttest.Tmpfs(t, below, "size=40m")
	image := filepath.Join(below, "image")
	mounttest.Image(t, image, "ext2", 128<<20)
	mounttest.Loop(t, image, root)
	n := withFiles(t, root)
	filler, err := os.Create(filepath.Join(below, "filler"))
	must(t, err)
	size := int64(0)
	for piece := make([]byte, 64<<10); err == nil; size += int64(len(piece)) {
		_, err = filler.Write(piece)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, filler.Truncate(size-2*mebibyte), filler.Close()) // for records and the like
	for range 3 {
		if err := sized(t, n, "pvc-2", 16, fromSnapshot(snap1)); err == nil {
			must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0o200))
			hasFiles(t, n.path("pvc-2"), 'a')
			t.Fatal("a copy is whole that could not be written")
		}
	}
}
