package volume_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

// enforcedOperations are those that set or remove limits.
func (d enforcedDisk) enforcedOperations() []operation {
	purge := purging()
	purge.again = func(t *testing.T, n *node, about string) {
		t.Helper()
		n.purgeAll(t)
		n.consistent(t, about+", purged")
	}
	return append(slices.Clone(d.copies), creating(), deleting(), undeleting(), expanding(), purge, d.enforcing())
}

// enforcing a directory that was restored.
func (d enforcedDisk) enforcing() operation {
	run := func(ctx context.Context, n *node) error { return n.Enforce(ctx, "pvc-1", nil, func(int64) {}) }
	look := func(t *testing.T, n *node, done bool, about string) {
		t.Helper()
		n.kept(t, "pvc-1", about)
		n.consistent(t, about)
		if v, _, err := n.Get(t.Context(), "pvc-1"); err != nil || (done && v.Enforcement != d.enforcement) {
			t.Errorf("%s: %+v, %v", about, v, err)
		}
	}
	return operation{
		name: "enforce", run: run, look: look,
		prepare: func(t *testing.T, n *node) {
			t.Helper()
			withVolume(t, n)
			d.restored(t, n, "pvc-1")
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := run(t.Context(), n); err != nil {
				t.Errorf("%s: enforce again: %v", about, err)
			}
			look(t, n, true, about+", enforced again")
		},
	}
}

// TestEnforcedCrashes lets every call fail from a step on, at each step of each operation, on real filesystems with
// quota. Then the pool is opened anew: nothing half-made is left, no limit either, and the same request works.
func TestEnforcedCrashes(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, d enforcedDisk, root string) {
		for _, op := range d.enforcedOperations() {
			t.Run(op.name, func(t *testing.T) {
				step := 1
				for !op.crashEnforced(t, filepath.Join(root, fmt.Sprintf("%s-%d", op.name, step)), step, required) {
					step++
				}
				atLeast(t, step-1, 10)
			})
		}
	})
}

// TestCopyingByFileCrashes is that of copies that are made file by file, in a pool without quota.
func TestCopyingByFileCrashes(t *testing.T) {
	for _, op := range copyOperations() {
		t.Run(op.name, func(t *testing.T) {
			step := 1
			for !op.crashEnforced(t, t.TempDir(), step) {
				step++
			}
			atLeast(t, step-1, 4)
		})
	}
}

// crashEnforced crashes an operation on a new pool in root at a step. It reports whether the operation ended before
// that.
func (op operation) crashEnforced(t *testing.T, root string, step int, options ...option) (done bool) {
	t.Helper()
	n := startAt(t, root, options...)
	must(t, openPool(t.Context(), n))
	op.prepare(t, n)

	host := disk.NewHost("/")
	probe := disktest.NewFaulty(host, 0, nil)
	must(t, openPool(t.Context(), startAt(t, root, append(options, withHost(probe))...)))
	opening := probe.Steps()
	faulty := disktest.NewFaulty(host, opening+step, nil)
	n = startAt(t, root, append(options, withHost(faulty))...)
	if err := openPool(t.Context(), n); err != nil || faulty.Steps() != opening {
		t.Fatalf("opening the pool took %d steps, and then %d: %v", opening, faulty.Steps(), err)
	}
	err := op.run(t.Context(), n)
	if done = faulty.Steps() < opening+step; done && err != nil {
		t.Fatalf("it failed without a crash: %v", err)
	}
	about := fmt.Sprintf("crash at step %d (%v)", step, err)
	after := settled(t, root, options...)
	op.look(t, after, done, about)
	op.again(t, after, about)

	after.deleteAll(t)
	after.purgeAll(t)
	after.unlimited(t)
	return done
}

// deleteAll deletes all volumes and snapshots.
func (n *node) deleteAll(t *testing.T) {
	t.Helper()
	for id, r := range n.records(t) {
		remove := n.Delete
		if r.Kind == store.OfSnapshot {
			remove = n.DeleteSnapshot
		}
		if err := remove(t.Context(), id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

// settled starts a node on what a crash has left, until what the filesystem has yet to give free is free.
func settled(t *testing.T, root string, options ...option) *node {
	t.Helper()
	for range attempts {
		n := startAt(t, root, options...)
		must(t, openPool(t.Context(), n))
		leftover := func(name string) bool { return strings.HasPrefix(name, ".") }
		if !slices.ContainsFunc(n.ls(t, disk.VolumesDir), leftover) {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d attempts have left a prepared record", attempts)
	return nil
}
