package volume_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// operation is one piece of work that a crash may interrupt anywhere.
type operation struct {
	name string
	// prepare brings a fresh disk to where the operation begins.
	prepare func(t *testing.T, disk *memfs.Disk)
	run     func(ctx context.Context, n *node) error
	// cluster holds the PersistentVolumes of the ids that the API knows; nil: none.
	cluster *cluster
	// check looks at a node started after the crash; done tells whether the operation had been answered.
	check func(t *testing.T, n *node, done bool, about string)
}

func operations() []operation {
	return []operation{
		{
			name:    "first use of a pool",
			prepare: func(*testing.T, *memfs.Disk) {},
			run:     openPool,
			check:   checkFirstUse,
		},
		{
			name:    "create",
			prepare: inUse,
			run: func(ctx context.Context, n *node) error {
				_, err := n.Create(ctx, spec("pvc-1"))
				return err
			},
			check: checkCreate,
		},
		{
			name:    "delete",
			prepare: withVolume,
			run:     func(ctx context.Context, n *node) error { return n.Delete(ctx, "pvc-1") },
			check:   checkDelete,
		},
		{
			name:    "expand",
			prepare: withVolume,
			run: func(ctx context.Context, n *node) error {
				_, err := n.Expand(ctx, "pvc-1", 3<<20, 0)
				return err
			},
			check: checkExpand,
		},
		{
			name:    "purge",
			prepare: inTrash,
			run: func(ctx context.Context, n *node) error {
				p, err := n.set.Get("local")
				if err != nil {
					return err
				}
				n.clock.advance(2 * time.Hour)
				real, _ := p.(*pool.Pool)
				real.Purge(ctx)
				return nil
			},
			check: checkPurge,
		},
		{
			name:    "adopt",
			cluster: knowing("pvc-1"),
			prepare: func(t *testing.T, disk *memfs.Disk) {
				t.Helper()
				warm(t, disk)
				disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
			},
			run: func(ctx context.Context, n *node) error {
				_, _, err := n.Get(ctx, "pvc-1")
				return err
			},
			check: func(t *testing.T, n *node, _ bool, about string) {
				t.Helper()
				if content, places := n.find(t, "pvc-1"); content != "kept" || !slices.Equal(places, []string{"pvc-1/precious"}) {
					t.Errorf("%s: content %q at %v", about, content, places)
				}
			},
		},
	}
}

func (op operation) known() *cluster {
	if op.cluster == nil {
		return &cluster{}
	}
	return op.cluster
}

// warm takes the pool into use, so that only the operation itself is under test.
func warm(t *testing.T, disk *memfs.Disk) *node {
	t.Helper()
	n := start(t, disk)
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func inUse(t *testing.T, disk *memfs.Disk) {
	t.Helper()
	warm(t, disk)
}

func inTrash(t *testing.T, disk *memfs.Disk) {
	t.Helper()
	withVolume(t, disk)
	if err := warm(t, disk).Delete(t.Context(), "pvc-1"); err != nil {
		t.Fatal(err)
	}
}

func withVolume(t *testing.T, disk *memfs.Disk) {
	t.Helper()
	n := warm(t, disk)
	if _, err := n.Create(t.Context(), spec("pvc-1")); err != nil {
		t.Fatal(err)
	}
	n.fill(t, "pvc-1")
}

func openPool(ctx context.Context, n *node) error {
	p, err := n.set.Get("local")
	if err != nil {
		return err
	}
	disk, err := p.Open(ctx)
	if err != nil {
		return err
	}
	return disk.Close()
}

func checkFirstUse(t *testing.T, n *node, _ bool, about string) {
	t.Helper()
	n.consistent(t, about)
}

func checkCreate(t *testing.T, n *node, done bool, about string) {
	t.Helper()
	n.consistent(t, about)
	if _, _, err := n.Get(t.Context(), "pvc-1"); done && err != nil {
		t.Errorf("%s: a volume that was answered is gone: %v", about, err)
	}
	if _, err := n.Create(t.Context(), spec("pvc-1")); err != nil {
		t.Errorf("%s: create again: %v", about, err)
	}
	n.consistent(t, about+", created again")
}

func checkDelete(t *testing.T, n *node, done bool, about string) {
	t.Helper()
	n.consistent(t, about)
	_, _, err := n.Get(t.Context(), "pvc-1")
	if done && !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("%s: a volume whose deletion was answered is back: %v", about, err)
	}
	if content, places := n.find(t, "pvc-1"); content != "kept" || len(places) == 0 {
		t.Errorf("%s: data %q is at %v, want it kept", about, content, places)
	}
	checkDeleteAgain(t, n, false, about)
}

// checkExpand wants the size of before or the one asked for, the latter if it was answered.
func checkExpand(t *testing.T, n *node, done bool, about string) {
	t.Helper()
	n.consistent(t, about)
	v, _, err := n.Get(t.Context(), "pvc-1")
	if err != nil || (v.Bytes != 1<<20 && v.Bytes != 3<<20) || (done && v.Bytes != 3<<20) {
		t.Errorf("%s: %d bytes, %v (answered: %v)", about, v.Bytes, err, done)
	}
	if content, places := n.find(t, "pvc-1"); content != "kept" || !slices.Equal(places, []string{"pvc-1/precious"}) {
		t.Errorf("%s: content %q at %v", about, content, places)
	}
	if v, err := n.Expand(t.Context(), "pvc-1", 3<<20, 0); err != nil || v.Bytes != 3<<20 {
		t.Errorf("%s: expand again: %d, %v", about, v.Bytes, err)
	}
	n.consistent(t, about+", expanded again")
}

// checkPurge wants the purge to go on, and nothing of the volume left then, its limit neither.
func checkPurge(t *testing.T, n *node, _ bool, about string) {
	t.Helper()
	n.consistent(t, about)
	p, err := n.set.Get("local")
	if err != nil {
		t.Fatal(err)
	}
	n.clock.advance(2 * time.Hour)
	real, _ := p.(*pool.Pool)
	for range 3 {
		real.Purge(t.Context())
	}
	if entries := n.ls(t, poolfs.TrashDir); !slices.Equal(entries, []string{".spare"}) {
		t.Errorf("%s: the trash holds %v", about, entries)
	}
	n.consistent(t, about+", purged")
}

// checkDeleteAgain repeats the delete and looks at what there is then.
func checkDeleteAgain(t *testing.T, n *node, _ bool, about string) {
	t.Helper()
	about += ", deleted again"
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("%s: %v", about, err)
	}
	content, places := n.find(t, "pvc-1")
	for _, place := range places {
		if !strings.HasPrefix(place, poolfs.TrashDir) {
			t.Errorf("%s: data is at %v, want it in the trash", about, places)
		}
	}
	if content != "kept" {
		t.Errorf("%s: data is %q", about, content)
	}
	n.consistent(t, about)
	complete := 0
	for _, e := range n.ls(t, poolfs.TrashDir) {
		if slices.Equal(n.ls(t, poolfs.TrashDir+"/"+e), []string{"data", "record.json"}) {
			complete++
		}
	}
	if complete != 1 {
		t.Errorf("%s: %d complete trash entries, want one", about, complete)
	}
}

// aftermath is what a crash leaves of a disk.
type aftermath struct {
	name string
	of   func(*memfs.Disk) *memfs.Disk
}

func aftermaths() []aftermath {
	all := []aftermath{
		{"forgetting all that was not synced", (*memfs.Disk).Crash},
		{"keeping all", (*memfs.Disk).CrashKeepingAll},
	}
	for seed := range uint64(8) {
		all = append(all, aftermath{fmt.Sprintf("keeping some (seed %d)", seed), func(d *memfs.Disk) *memfs.Disk {
			return d.CrashRandom(rand.New(rand.NewPCG(seed, 0)))
		}})
	}
	return all
}

// onEveryQuota runs a test on a disk with each kind of quota.
func onEveryQuota(t *testing.T, test func(t *testing.T, fresh func() *memfs.Disk)) {
	t.Helper()
	for name, quota := range quotas() {
		t.Run(name, func(t *testing.T) {
			test(t, func() *memfs.Disk { return quotaDisk(t, quota) })
		})
	}
}

// TestCrashAtEveryStep crashes every operation before every step that changes or syncs the disk, and once after it was
// answered, and starts a node on whatever each kind of crash leaves.
func TestCrashAtEveryStep(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		for _, op := range operations() {
			t.Run(op.name, func(t *testing.T) {
				steps := crashEverywhere(t, op, fresh, 0)
				if steps < 3 {
					t.Errorf("only %d steps were seen, the operation did nothing", steps)
				}
				t.Logf("%d steps, %d aftermaths each", steps, len(aftermaths()))
			})
		}
	})
}

// TestCrashAfterACommit is the same on btrfs, whose kernel has committed by itself before one of the steps. Nothing else puts the steps
// of a create onto the disk one by one.
func TestCrashAfterACommit(t *testing.T) {
	for _, quota := range []poolfs.Quota{poolfs.QuotaSimple, poolfs.QuotaFull} {
		for _, op := range operations()[1:4] {
			t.Run(fmt.Sprintf("%s/%s", quota, op.name), func(t *testing.T) {
				for commit := 1; ; commit++ {
					if steps := crashEverywhere(t, op, func() *memfs.Disk { return quotaDisk(t, quota) }, commit); commit > steps {
						return
					}
				}
			})
		}
	}
}

// crashEverywhere crashes an operation at each of its steps. The kernel commits before one of them (0: none).
func crashEverywhere(t *testing.T, op operation, fresh func() *memfs.Disk, commit int) (steps int) {
	t.Helper()
	for step := 1; ; step++ {
		disk := fresh()
		op.prepare(t, disk)
		n := start(t, disk, withCluster(op.known()))
		if op.name != "first use of a pool" && op.name != "adopt" {
			if err := openPool(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		disk.CrashAt(step)
		if commit > 0 {
			disk.CommitAt(commit)
		}
		err := op.run(t.Context(), n)
		done := !disk.Crashed()
		if done && err != nil {
			t.Fatalf("%s failed without a crash: %v", op.name, err)
		}
		for _, a := range aftermaths() {
			about := fmt.Sprintf("crash at step %d (%s), commit before %d, %s", step, last(disk.Trace()), commit, a.name)
			after := start(t, a.of(disk), withCluster(op.known()))
			if err := openPool(t.Context(), after); err != nil {
				t.Errorf("%s: the pool does not come back: %v", about, err)
				continue
			}
			op.check(t, after, done, about)
		}
		if done {
			return step - 1
		}
	}
}

// TestCrashDuringRecovery crashes recovery itself at every step, after every crash of create, delete and expand.
func TestCrashDuringRecovery(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		for _, op := range operations()[1:4] {
			t.Run(op.name, func(t *testing.T) {
				for step := 1; ; step++ {
					disk := fresh()
					op.prepare(t, disk)
					n := warm(t, disk)
					disk.CrashAt(step)
					if err := op.run(t.Context(), n); err == nil {
						break
					}
					for _, first := range aftermaths()[:3] {
						crashRecovery(t, op, func() *memfs.Disk { return first.of(disk) }, fmt.Sprintf("step %d, %s", step, first.name))
					}
				}
			})
		}
	})
}

// crashRecovery crashes the recovery of a disk at each of its steps.
func crashRecovery(t *testing.T, op operation, broken func() *memfs.Disk, about string) {
	t.Helper()
	for step := 1; ; step++ {
		disk := broken()
		disk.CrashAt(step)
		n, err := tryStart(disk)
		if err == nil {
			err = openPool(t.Context(), n)
		}
		if !disk.Crashed() {
			if err != nil {
				t.Errorf("%s: recovery fails: %v", about, err)
			}
			return
		}
		for _, second := range aftermaths()[:3] {
			about := fmt.Sprintf("%s, recovery crashed at step %d, %s", about, step, second.name)
			op.check(t, warm(t, second.of(disk)), false, about)
		}
	}
}

// TestErrorAtEveryStep lets every step of create, delete and expand fail once: the error comes out, nothing half-made stays and the same
// request works afterwards.
func TestErrorAtEveryStep(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			for _, op := range operations()[1:4] {
				t.Run(fmt.Sprintf("%s/%v", op.name, cause), func(t *testing.T) { failEverywhere(t, op, cause, fresh) })
			}
		}
	})
}

func failEverywhere(t *testing.T, op operation, cause error, fresh func() *memfs.Disk) {
	t.Helper()
	for step := 1; ; step++ {
		disk := fresh()
		op.prepare(t, disk)
		n := warm(t, disk)
		before := disk.Calls()
		disk.FailAt(step, cause)
		err := op.run(t.Context(), n)
		if disk.Calls()-before < step {
			if err != nil || step < 3 {
				t.Fatalf("ended before step %d: %v", step, err)
			}
			return
		}
		// A delete survives a full disk: the spare directory takes the place of a new one.
		survived := err == nil && op.name == "delete" && step == 1 && errors.Is(cause, syscall.ENOSPC)
		if !survived && !errors.Is(err, cause) {
			t.Errorf("step %d: error %v does not tell of %v", step, err, cause)
		}
		about := fmt.Sprintf("%v at step %d (%s)", cause, step, last(disk.Trace()))
		check := op.check
		if op.name == "delete" { // what it leaves is finished by the repeated call
			check = checkDeleteAgain
		}
		check(t, n, false, about)
	}
}

// TestRepeatedCreateIsDurable lets a create fail with all that could undo it, which leaves what a driver leaves that is killed there.
// The same request is answered some time, and what was answered survives a crash.
func TestRepeatedCreateIsDurable(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		for step := 1; ; step++ {
			disk := fresh()
			n := warm(t, disk)
			before := disk.Calls()
			for i := range 4 {
				disk.FailAt(step+i, syscall.EIO)
			}
			_, first := n.Create(t.Context(), spec("pvc-1"))
			if disk.Calls()-before < step {
				return
			}
			err := first
			for tries := 0; err != nil && tries < 4; tries++ { // each failure can come to another try
				_, err = n.Create(t.Context(), spec("pvc-1"))
			}
			if err != nil {
				t.Errorf("failed at step %d (%v), and again: %v", step, first, err)
				continue
			}
			after := warm(t, disk.Crash())
			if _, _, err := after.Get(t.Context(), "pvc-1"); err != nil {
				t.Errorf("failed at step %d (%v): the volume that was answered is gone: %v", step, first, err)
			}
		}
	})
}

func last(trace []string) string {
	if len(trace) == 0 {
		return "nothing done"
	}
	return trace[len(trace)-1]
}

// knowing is a cluster with PersistentVolumes of these handles.
func knowing(ids ...string) *cluster {
	c := &cluster{}
	for _, id := range ids {
		c.pvs = append(c.pvs, volume.PersistentVolume{Name: id, Handle: id, Pool: "local", Bytes: 1 << 20})
	}
	return c
}
