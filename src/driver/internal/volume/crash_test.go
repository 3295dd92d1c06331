package volume_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
)

// aftermath is what a crash leaves of a disk.
type aftermath struct {
	name string
	of   func(*disktest.Disk) *disktest.Disk
	// mounted reports that what is mounted stays so: only the driver crashed.
	mounted bool
}

// aftermaths are those of a crash of the machine.
func aftermaths() []aftermath {
	all := []aftermath{
		{name: "forgetting all that was not synced", of: (*disktest.Disk).Crash},
		{name: "keeping all", of: (*disktest.Disk).CrashKeepingAll},
	}
	for seed := range seeds() {
		some := func(d *disktest.Disk) *disktest.Disk { return d.CrashRandom(rand.New(rand.NewPCG(seed, 0))) }
		all = append(all, aftermath{name: fmt.Sprintf("keeping some (seed %d)", seed), of: some})
	}
	return all
}

// seeds is how many random crashes follow each step: 3, or what `make test-crash` says, which runs at night.
func seeds() uint64 {
	text := os.Getenv("HPP_CRASH_SEEDS")
	if text == "" {
		return 3
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number < 3 {
		panic("HPP_CRASH_SEEDS=" + text + ": want a number of at least 3")
	}
	return number
}

// killed changes the disk itself, so it comes after all others.
func killed() aftermath {
	return aftermath{name: "only the driver was killed", of: (*disktest.Disk).Killed, mounted: true}
}

// prepared gives a disk on which the operation begins, and a node to run it on.
func (op operation) prepared(t *testing.T) *node {
	t.Helper()
	d := newDisk()
	cluster := naming(op.cluster...)
	if op.prepare == nil {
		return start(t, d, withCluster(cluster))
	}
	n := warm(t, d)
	op.prepare(t, n)
	again := start(t, d, withMounts(n.mounts), withCluster(cluster))
	return op.started(t, again, nil)
}

// after starts a node on what is left after a crash.
func (op operation) after(t *testing.T, n *node, a aftermath) *node {
	t.Helper()
	options := []option{withCluster(naming(op.cluster...))}
	if a.mounted {
		options = append(options, withMounts(n.mounts))
	}
	again, err := tryStart(a.of(n.disk), options...)
	return op.started(t, again, err)
}

// everyOperation runs a test for each operation.
func everyOperation(t *testing.T, test func(t *testing.T, op operation)) {
	t.Helper()
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) { test(t, op) })
	}
}

// TestCrashAtEveryStep crashes every operation before every step that changes or syncs the disk, and once after it was
// answered, and starts a node on whatever each kind of crash leaves.
func TestCrashAtEveryStep(t *testing.T) {
	everyOperation(t, func(t *testing.T, op operation) {
		for step := 1; ; step++ {
			n := op.prepared(t)
			n.disk.CrashAt(step)
			err := op.run(t.Context(), n)
			done := !n.disk.Crashed()
			if done && err != nil {
				t.Fatalf("it failed without a crash: %v", err)
			}
			for _, a := range append(aftermaths(), killed()) {
				about := fmt.Sprintf("crash at step %d (%s), %s", step, last(n.disk), a.name)
				after := op.after(t, n, a)
				op.look(t, after, done, about)
				op.again(t, after, about)
			}
			if done {
				atLeast(t, step-1, 3)
				return
			}
		}
	})
}

// atLeast fails a test that found too few steps to have tested anything.
func atLeast(t *testing.T, steps, least int) {
	t.Helper()
	if steps < least {
		t.Errorf("only %d steps were seen, the operation did nothing", steps)
	}
	t.Logf("%d steps", steps)
}

// TestCrashDuringRecovery crashes recovery itself at every step, after every crash of every operation.
func TestCrashDuringRecovery(t *testing.T) {
	for _, op := range operations()[1 : len(operations())-1] { // the first and the last leave nothing to recover
		t.Run(op.name, func(t *testing.T) {
			for step := 1; ; step++ {
				n := op.prepared(t)
				n.disk.CrashAt(step)
				if op.run(t.Context(), n); !n.disk.Crashed() {
					return
				}
				for _, first := range aftermaths()[:4] {
					op.crashRecovery(t, n, first, fmt.Sprintf("step %d (%s), %s", step, last(n.disk), first.name))
				}
			}
		})
	}
}

// crashRecovery crashes the recovery of a disk at each of its steps.
func (op operation) crashRecovery(t *testing.T, crashed *node, first aftermath, about string) {
	t.Helper()
	for step := 1; ; step++ {
		d := first.of(crashed.disk)
		d.CrashAt(step)
		n, err := tryStart(d, withCluster(naming(op.cluster...)))
		if err == nil {
			err = openPool(t.Context(), n)
		}
		if !d.Crashed() {
			if err != nil {
				t.Errorf("%s: recovery fails: %v", about, err)
			}
			return
		}
		for _, next := range aftermaths()[:4] {
			about := fmt.Sprintf("%s, recovery crashed at step %d (%s), %s", about, step, last(d), next.name)
			after := op.after(t, &node{disk: d}, next)
			op.look(t, after, false, about)
			op.again(t, after, about)
		}
	}
}

// TestErrorAtEveryStep lets every step of every operation fail once: the error comes out, nothing half-made stays and
// the same request works afterwards.
func TestErrorAtEveryStep(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		everyOperation(t, func(t *testing.T, op operation) {
			for step := 1; ; step++ {
				n := op.prepared(t)
				before := n.disk.Calls()
				n.disk.FailAt(step, cause)
				err := op.run(t.Context(), n)
				if n.disk.Calls()-before < step {
					must(t, err)
					atLeast(t, step-1, 3)
					return
				}
				about := fmt.Sprintf("%v at step %d (%s)", cause, step, last(n.disk))
				op.failed(t, n, err, cause, about)
			}
		})
	}
}

// failed looks at what an error leaves.
func (op operation) failed(t *testing.T, n *node, err, cause error, about string) {
	t.Helper()
	survived := err == nil && op.survives(cause)
	if !survived && !op.wordy && !errors.Is(err, cause) {
		t.Errorf("%s: the error is %v", about, err)
	}
	if op.recovered {
		n = op.after(t, n, killed())
	}
	if !op.finishes {
		op.look(t, n, err == nil, about)
	}
	op.again(t, n, about)
}

// survives reports whether an operation may succeed all the same: the spare directory takes the place of a trash
// entry, or of the next spare one, where the filesystem is full.
func (op operation) survives(cause error) bool {
	return op.finishes && errors.Is(cause, syscall.ENOSPC)
}

// TestAskedAgainThenPowerCut kills the driver alone at every step, or lets four steps fail in a row. The same request
// is answered some time, and what was answered survives a power cut.
func TestAskedAgainThenPowerCut(t *testing.T) {
	everyOperation(t, func(t *testing.T, op operation) {
		for step := 1; ; step++ {
			n := op.prepared(t)
			n.disk.CrashAt(step)
			if op.run(t.Context(), n); !n.disk.Crashed() {
				break
			}
			about := fmt.Sprintf("killed at step %d (%s)", step, last(n.disk))
			op.askAndCut(t, op.after(t, n, killed()), !op.remade, about)
		}
		for step := 1; ; step++ {
			n := op.prepared(t)
			before := n.disk.Calls()
			for i := range 4 {
				n.disk.FailAt(step+i, syscall.EIO)
			}
			err := op.run(t.Context(), n)
			if n.disk.Calls()-before < step {
				return
			}
			op.askAndCut(t, n, !op.remade && !op.fleeting, fmt.Sprintf("failed at step %d (%v)", step, err))
		}
	})
}

// askAndCut asks until it is answered, which each of four failures can put off, and cuts the power then.
func (op operation) askAndCut(t *testing.T, n *node, lasts bool, about string) {
	t.Helper()
	err := errors.New("not asked yet")
	for tries := 0; err != nil && tries < 5; tries++ {
		err = op.run(t.Context(), n)
	}
	if err != nil {
		t.Errorf("%s: asked again: %v", about, err)
		return
	}
	for _, a := range aftermaths() {
		about := about + ", asked again, " + a.name
		after := op.after(t, n, a)
		op.look(t, after, lasts, about)
		op.again(t, after, about)
	}
}

func last(d *disktest.Disk) string {
	trace := d.Trace()
	if len(trace) == 0 {
		return "nothing done"
	}
	return trace[len(trace)-1]
}
