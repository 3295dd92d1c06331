package volume_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
)

// interruptions are how a request may end unanswered while the machine goes on: the kernel knows what the request did, the disk maybe not.
// Each gives the node that the request is repeated on.
func interruptions() map[string]func(t *testing.T, n *node, step int, op operation) *node {
	return map[string]func(t *testing.T, n *node, step int, op operation) *node{
		"a step that fails": func(t *testing.T, n *node, step int, op operation) *node {
			t.Helper()
			n.disk.FailAt(step, syscall.EIO)
			_ = op.run(t.Context(), n)
			return n
		},
		"the driver killed": func(t *testing.T, n *node, step int, op operation) *node {
			t.Helper()
			n.disk.CrashAt(step)
			_ = op.run(t.Context(), n)
			return start(t, n.disk.Killed())
		},
	}
}

// TestWhatARetryAnswersIsDurable interrupts a request at every step, repeats it, and cuts the power as soon as that was answered.
func TestWhatARetryAnswersIsDurable(t *testing.T) {
	for _, op := range operations() {
		if op.name != "create" && op.name != "expand" && op.name != "delete" {
			continue
		}
		for name, interrupted := range interruptions() {
			t.Run(op.name+", "+name, func(t *testing.T) {
				onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
					for step := 1; ; step++ {
						disk := fresh()
						disk.Mount(statePath) // what is synced there writes nothing of the pool
						op.prepare(t, disk)
						n := warm(t, disk)
						before := disk.Calls()
						again := interrupted(t, n, step, op)
						if disk.Calls() < before+step { // nothing was interrupted any more
							break
						}
						about := fmt.Sprintf("%s at step %d (%s)", name, step, last(disk.Trace()))
						if err := op.run(t.Context(), again); err != nil {
							t.Fatalf("%s, again: %v", about, err)
						}
						for _, a := range aftermaths() {
							op.check(t, warm(t, a.of(disk)), true, about+", "+a.name)
						}
					}
				})
			})
		}
	}
}

// TestADeleteOfAnUnknownVolumeCostsNothing on the disk, also where others were just made.
func TestADeleteOfAnUnknownVolumeCostsNothing(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		withVolume(t, disk)
		n := warm(t, disk)
		before := disk.Calls()
		if err := n.Delete(t.Context(), "pvc-2"); err != nil {
			t.Error(err)
		}
		if steps := disk.Trace()[before:]; len(steps) > 0 {
			t.Errorf("it does %v", steps)
		}
	})
}
