//go:build !vm

package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestCopyThatCannotBeWritten: the kernel says once that data is not on the disk, and such a copy never becomes whole.
func TestCopyThatCannotBeWritten(t *testing.T) {
	below, root := t.TempDir(), t.TempDir()
	mounttest.Tmpfs(t, below, "size=96m")
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
	must(t, filler.Truncate(size-2*mebibyte))
	ended, makesRoom := make(chan struct{}), make(chan error)
	full := func() bool {
		var st unix.Statfs_t
		return unix.Statfs(below, &st) != nil || st.Bavail == 0
	}
	go func() { // once something could not be written
		for over := false; !over && !full(); {
			select {
			case <-ended:
				over = true
			case <-time.After(time.Millisecond):
			}
		}
		makesRoom <- errors.Join(filler.Truncate(0), filler.Close())
	}()
	refused := sized(t, n, "pvc-2", 16, fromSnapshot(snap1))
	close(ended)
	must(t, <-makesRoom)
	for tries := 0; (tries == 0 || err != nil) && tries < 10; tries++ {
		err = sized(t, n, "pvc-2", 16, fromSnapshot(snap1))
	}
	must(t, err, os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0o200))
	hasFiles(t, n.path("pvc-2"), 'a')
	if refused == nil {
		t.Error("the disk has refused nothing")
	}
}
