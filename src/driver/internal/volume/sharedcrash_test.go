package volume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestTheServerCrashesAtEveryStep crashes the filesystem itself, which forgets what no node has synced, before every
// step of an operation, and once after it was answered.
func TestTheServerCrashesAtEveryStep(t *testing.T) {
	t.Run("create", func(t *testing.T) {
		everyCrash(t, nil, createOne, func(t *testing.T, n *node, done bool, about string) {
			t.Helper()
			_, health, err := n.Get(t.Context(), "pvc-1")
			if done && (err != nil || health.Condition != volume.Healthy) {
				t.Errorf("%s: a volume that was answered is gone: %+v, %v", about, health, err)
			}
			insist(t, n, createOne, about+", created again")
		})
	})
	t.Run("delete", func(t *testing.T) {
		everyCrash(t, withVolume, deleteOne, func(t *testing.T, n *node, done bool, about string) {
			t.Helper()
			if len(n.places(t)) == 0 { // a rename that the crash cut in half has left it in two
				t.Errorf("%s: the data is lost", about)
			}
			if _, _, err := n.Get(t.Context(), "pvc-1"); done && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: a volume that was deleted is there: %v", about, err)
			}
			insist(t, n, deleteOne, about+", deleted again")
			if at := n.places(t); len(at) == 0 || slices.Contains(at, "pvc-1/precious") {
				t.Errorf("%s: the data is at %v", about, at)
			}
		})
	})
}

func everyCrash(
	t *testing.T, prepare func(*testing.T, *node), run func(context.Context, *node) error,
	look func(t *testing.T, n *node, done bool, about string),
) {
	t.Helper()
	for step := 1; ; step++ {
		d := network()
		a, _ := encounter{prepare: prepare}.prepared(t, d, nil)
		d.CrashAt(step)
		err := run(t.Context(), a)
		done := !d.Crashed()
		if done && err != nil {
			t.Fatal(err)
		}
		for _, after := range aftermaths() {
			about := fmt.Sprintf("crash at step %d (%s), %s", step, last(d), after.name)
			up := after.of(d)
			for _, name := range []string{"b", "a"} { // in whatever order the nodes return
				n := member(t, up, name, nil)
				must(t, openPool(t.Context(), n))
				look(t, n, done && name == "b", about)
			}
		}
		if done {
			atLeast(t, step-1, 8)
			return
		}
	}
}

// TestTwoNodesTakeAPoolIntoUse pauses a node before each of its calls while it takes a pool into use; another node does
// the same, and makes a volume.
func TestTwoNodesTakeAPoolIntoUse(t *testing.T) {
	for step := 1; ; step++ {
		d := network()
		first := disktest.NewFaulty(d, 0, nil)
		a, b := member(t, d, "a", first), member(t, d, "b", nil)
		reached := false
		first.Before(step, func() {
			reached = true
			must(t, openPool(t.Context(), b))
			insist(t, b, createOne, "the other")
			b.fill(t, "pvc-1")
		})
		about := fmt.Sprintf("paused before call %d", step)
		for tries := 1; openPool(t.Context(), a) != nil; tries++ { // as the watcher does
			if tries == 3 {
				t.Fatalf("%s: %v", about, openPool(t.Context(), a))
			}
		}
		if !reached {
			atLeast(t, step-1, 15)
			return
		}
		if a.status().ID != b.status().ID {
			t.Errorf("%s: the nodes have pools %s and %s", about, a.status().ID, b.status().ID)
		}
		a.sharedKept(t, about)
		insist(t, a, createOne, about)
	}
}
