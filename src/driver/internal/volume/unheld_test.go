package volume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// unheld starts a node whose recovery fails to set pvc-1's limit, once.
func unheld(t *testing.T, disk *memfs.Disk) *node {
	t.Helper()
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	pool := n.open(t)
	quotas, _ := poolfs.QuotasOf(pool)
	if err := errors.Join(quotas.SetLimit(n.records(t)["pvc-1"].ProjectID, poolfs.Limit{Bytes: 4096}), pool.Close()); err != nil {
		t.Fatal(err)
	}
	n = recoveredWithout(t, disk, " to 1048576") // the limit of its record
	if s := n.set.Status()[0]; s.Refused != 1 || !n.events.tell("VolumeRefused", "pvc-1") {
		t.Fatalf("%+v, events %v", s, n.events.told)
	}
	return n
}

// recoveredWithout starts a node; the first step of its recovery that a word describes fails.
func recoveredWithout(t *testing.T, disk *memfs.Disk, word string) *node {
	t.Helper()
	rehearsal := disk.CrashKeepingAll()
	n := start(t, rehearsal)
	before := rehearsal.Calls()
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	steps := rehearsal.Trace()[before:]
	at := slices.IndexFunc(steps, func(step string) bool { return strings.Contains(step, word) })
	if at < 0 {
		t.Fatalf("no step of recovery is %q: %v", word, steps)
	}
	n = start(t, disk)
	disk.FailAt(at+1, syscall.EIO)
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestALimitThatIsHeldAgain is reported no longer, whichever operation held it.
func TestALimitThatIsHeldAgain(t *testing.T) {
	for name, operation := range map[string]func(ctx context.Context, n *node) error{
		"publish": func(ctx context.Context, n *node) error {
			return n.Publish(ctx, volume.PublishRequest{ID: "pvc-1", Target: target})
		},
		"expand": func(ctx context.Context, n *node) error {
			_, err := n.Expand(ctx, "pvc-1", 2<<20, 0)
			return err
		},
		"an expansion that is done": func(ctx context.Context, n *node) error {
			_, err := n.Expand(ctx, "pvc-1", 1<<20, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
				n := unheld(t, fresh())
				if err := operation(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				n.consistent(t, "held")
			})
		})
	}
}

// TestALimitThatIsStillNotHeld stays reported, and the pod starts all the same.
func TestALimitThatIsStillNotHeld(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	n := unheld(t, disk)
	disk.FailAt(1, syscall.EIO)
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Error(err)
	}
	if s := n.set.Status()[0]; s.Refused != 1 {
		t.Errorf("%+v", s)
	}
}

// TestALeftoverIsReportedWhateverIsHeld: that the volume's limit is held clears nothing of it.
func TestALeftoverIsReportedWhateverIsHeld(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	withVolume(t, disk)
	disk.AddDir(poolPath + "/csi/" + poolfs.StagingDir + "/pvc-1")
	n := recoveredWithout(t, disk, "staging/pvc-1")
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Error(err)
	}
	if s := n.set.Status()[0]; s.Refused != 1 || !n.events.tell("VolumeRefused", "pvc-1") {
		t.Errorf("%+v, %v", s, n.events.told)
	}
}
