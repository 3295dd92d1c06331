package volume_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestCopyErrors lets each step of each operation on copies fail once, on real filesystems with quota: the error
// comes out, nothing half-made stays, no limit either, and the same request works, of the same driver or the next one.
func TestCopyErrors(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, d enforcedDisk, root string) {
		for _, op := range d.copies {
			t.Run(op.name, func(t *testing.T) { op.errAtEachStep(t, root, required) })
		}
	})
}

// TestCopyingByFileErrors is that of copies that are made file by file, where the filesystem shares their data.
func TestCopyingByFileErrors(t *testing.T) {
	root := memoryDisk(t, "xfs", 1<<30)
	for _, op := range copyOperations() {
		t.Run(op.name, func(t *testing.T) { op.errAtEachStep(t, root) })
	}
}

// memoryDisk mounts a new filesystem of a size in bytes that is kept in memory.
func memoryDisk(t *testing.T, kind string, bytes int64) (root string) {
	t.Helper()
	memory, root := t.TempDir(), t.TempDir()
	mounttest.Tmpfs(t, memory, "")
	mounttest.Image(t, filepath.Join(memory, "image"), kind, bytes)
	mounttest.Loop(t, filepath.Join(memory, "image"), root)
	return root
}

// errAtEachStep has a pool in root for each step. At night each error is tried with both drivers, else with one.
func (op operation) errAtEachStep(t *testing.T, root string, options ...option) {
	t.Helper()
	stride := 2
	if seeds() > 3 {
		stride = 1
	}
	for first, same := range []bool{false, true} {
		step := 1 + first
		for !op.errAtStep(t, filepath.Join(root, fmt.Sprint(op.name, same, step)), step, same, options...) {
			step += stride
		}
		atLeast(t, step-1, 4)
	}
}

// errAtStep lets a step fail. It reports whether the operation ended before that.
func (op operation) errAtStep(t *testing.T, root string, step int, same bool, options ...option) (done bool) {
	t.Helper()
	n := startAt(t, root, options...)
	must(t, openPool(t.Context(), n))
	op.prepare(t, n)
	host := disktest.NewFaulty(disk.NewHost("/"), 0, nil)
	n = startAt(t, root, append(options, withHost(host))...)
	must(t, openPool(t.Context(), n))
	fails := host.Steps() + step
	host.FailOnce(fails)
	err := op.run(t.Context(), n)
	done = host.Steps() < fails
	host.FailOnce(0)
	about := fmt.Sprintf("error at step %d (%v)", step, err)
	says := err == nil || errors.Is(err, volume.ErrBusy) || strings.Contains(err.Error(), syscall.EIO.Error())
	if !says || done && err != nil {
		t.Errorf("%s: the error does not say so", about)
	}
	if same {
		op.ask(t, n, about)
	}
	after := settled(t, root, options...)
	if same || err == nil || !op.finishes {
		op.look(t, after, same || err == nil, about)
	}
	op.again(t, after, about)
	after.deleteAll(t)
	after.purgeAll(t)
	after.unlimited(t)
	return done
}

// ask asks until it is answered. What the filesystem has yet to give free is waited for.
func (op operation) ask(t *testing.T, n *node, about string) {
	t.Helper()
	err, failed := error(nil), 0
	for range attempts {
		if err = op.run(t.Context(), n); err == nil {
			return
		}
		if !errors.Is(err, volume.ErrBusy) {
			failed++
		}
		if failed > 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s: asked again: %v", about, err)
}

// TestRepeatedCreateWithAnError answers the volume that is there, or the error, and never something between.
func TestRepeatedCreateWithAnError(t *testing.T) {
	d := newDisk()
	mustCreate(t, warm(t, d), "pvc-1")
	for step := 1; ; step++ {
		host := disktest.NewFaulty(d, 0, nil)
		n := start(t, d, withHost(host))
		must(t, openPool(t.Context(), n))
		fails := host.Steps() + step
		host.FailOnce(fails)
		v, err := n.Create(t.Context(), spec("pvc-1"))
		if err == nil && (v.ID != "pvc-1" || v.Bytes != mebibyte) {
			t.Errorf("step %d: %+v", step, v)
		}
		if host.Steps() < fails {
			must(t, err)
			atLeast(t, step-1, 4)
			return
		}
	}
}
