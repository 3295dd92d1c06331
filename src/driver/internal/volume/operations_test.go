package volume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// operation is one piece of work that a crash may interrupt anywhere.
type operation struct {
	name string
	// prepare brings a pool that was just taken into use to where the operation begins; nil: the pool is new.
	prepare func(t *testing.T, n *node)
	run     func(ctx context.Context, n *node) error
	// cluster has the PersistentVolumes of these ids.
	cluster []string
	// look checks what is there after a crash; done reports whether the operation had been answered.
	look func(t *testing.T, n *node, done bool, about string)
	// again asks for the same again, and looks at what is there then.
	again func(t *testing.T, n *node, about string)
	// finishes reports that what an error leaves is not undone but finished by the same request.
	finishes bool
	// recovered reports that what an error leaves is finished by recovery, and not before that.
	recovered bool
	// remade reports that what was done is done anew at the next opportunity: it need not last.
	remade bool
	// fleeting reports that what was answered after several errors in a row need not last: a pod's scratch space is
	// made anew.
	fleeting bool
	// wordy reports that the error which a caller gets only quotes its cause.
	wordy bool
	// absent reports that the pool is away.
	absent bool
}

// started starts a node to run the operation on, or to look at what is left of it.
func (op operation) started(t *testing.T, n *node, err error) *node {
	t.Helper()
	if err == nil {
		err = openPool(t.Context(), n)
	}
	if err != nil && (!op.absent || !errors.Is(err, pool.ErrAbsent)) {
		t.Fatalf("%s: the pool does not come back: %v", op.name, err)
	}
	return n
}

func operations() []operation {
	return []operation{
		firstUse(), creating(), deleting(), discarding(), undeleting(), expanding(), purging(), adopting(),
		adoptingByHand(), publishingInline(), unpublishingInline(), forgetting(),
	}
}

func firstUse() operation {
	return operation{
		name: "first use of a pool", run: openPool, wordy: true,
		look: func(t *testing.T, n *node, _ bool, about string) {
			t.Helper()
			must(t, openPool(t.Context(), n))
			n.consistent(t, about)
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			mustCreate(t, n, "pvc-1")
			n.consistent(t, about)
		},
	}
}

func creating() operation {
	return operation{
		name:    "create",
		prepare: func(*testing.T, *node) {},
		run: func(ctx context.Context, n *node) error {
			_, err := n.Create(ctx, spec("pvc-1"))
			return err
		},
		look: func(t *testing.T, n *node, done bool, about string) {
			t.Helper()
			n.consistent(t, about)
			if _, health, err := n.Get(t.Context(), "pvc-1"); done &&
				(err != nil || health.Condition != volume.Healthy) {
				t.Errorf("%s: a volume that was answered is gone: %+v, %v", about, health, err)
			}
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if _, err := n.Create(t.Context(), spec("pvc-1")); err != nil {
				t.Errorf("%s: create again: %v", about, err)
			}
			n.consistent(t, about+", created again")
		},
	}
}

func withVolume(t *testing.T, n *node) {
	t.Helper()
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
}

func deleting() operation {
	return operation{
		name: "delete", prepare: withVolume, finishes: true,
		run:  func(ctx context.Context, n *node) error { return n.Delete(ctx, "pvc-1") },
		look: lookDeleted,
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := n.Delete(t.Context(), "pvc-1"); err != nil {
				t.Errorf("%s: delete again: %v", about, err)
			}
			inTrashOnly(t, n, about+", deleted again")
		},
	}
}

// discarding is what an admin does about an orphan. Asked again, it says that there is no such volume.
func discarding() operation {
	op := deleting()
	op.name = "discard"
	op.run = func(ctx context.Context, n *node) error {
		err := n.Discard(ctx, "pvc-1", "", 0)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	}
	op.again = func(t *testing.T, n *node, about string) {
		t.Helper()
		if err := op.run(t.Context(), n); err != nil {
			t.Errorf("%s: discard again: %v", about, err)
		}
		inTrashOnly(t, n, about+", discarded again")
	}
	return op
}

func lookDeleted(t *testing.T, n *node, done bool, about string) {
	t.Helper()
	n.consistent(t, about)
	_, _, err := n.Get(t.Context(), "pvc-1")
	if done && !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%s: a volume whose deletion was answered is back: %v", about, err)
	}
	// A rename that was cut in half leaves one directory with two names.
	if content, places := n.find(t, "pvc-1"); content != "kept" {
		t.Errorf("%s: data %q is at %v, want it kept", about, content, places)
	}
}

// inTrashOnly wants a volume's data in the trash, in one complete entry.
func inTrashOnly(t *testing.T, n *node, about string) {
	t.Helper()
	content, places := n.find(t, "pvc-1")
	if content != "kept" || !strings.HasPrefix(places[0], disk.TrashDir) {
		t.Errorf("%s: data %q is at %v, want it in the trash", about, content, places)
	}
	n.consistent(t, about)
	complete := 0
	for _, e := range n.ls(t, disk.TrashDir) {
		if slices.Equal(n.ls(t, disk.TrashDir+"/"+e), []string{"data", "record.json"}) {
			complete++
		}
	}
	if complete != 1 {
		t.Errorf("%s: %d complete trash entries, want one", about, complete)
	}
}

func expanding() operation {
	return operation{
		name: "expand", prepare: withVolume,
		run: func(ctx context.Context, n *node) error {
			_, err := n.Expand(ctx, "pvc-1", 3*mebibyte, 0)
			return err
		},
		look: func(t *testing.T, n *node, done bool, about string) { // of the size before, or as asked for
			t.Helper()
			n.consistent(t, about)
			v, _, err := n.Get(t.Context(), "pvc-1")
			if err != nil || (v.Bytes != mebibyte && v.Bytes != 3*mebibyte) || (done && v.Bytes != 3*mebibyte) {
				t.Errorf("%s: %d bytes, %v (answered: %v)", about, v.Bytes, err, done)
			}
			n.kept(t, "pvc-1", about)
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if v, err := n.Expand(t.Context(), "pvc-1", 3*mebibyte, 0); err != nil || v.Bytes != 3*mebibyte {
				t.Errorf("%s: expand again: %d, %v", about, v.Bytes, err)
			}
			n.consistent(t, about+", expanded again")
		},
	}
}

func purging() operation {
	run := func(ctx context.Context, n *node) error {
		n.clock.advance(2 * time.Hour)
		return n.purge(ctx)
	}
	return operation{
		name: "purge", run: run, finishes: true, recovered: true, // an empty entry may be one of a delete under way
		prepare: func(t *testing.T, n *node) {
			t.Helper()
			withVolume(t, n)
			must(t, n.Delete(t.Context(), "pvc-1"))
		},
		look: func(t *testing.T, n *node, _ bool, about string) {
			t.Helper()
			n.consistent(t, about)
		},
		again: func(t *testing.T, n *node, about string) { // nothing of the volume is left then
			t.Helper()
			if err := run(t.Context(), n); err != nil {
				t.Errorf("%s: purge again: %v", about, err)
			}
			if entries := n.ls(t, disk.TrashDir); !slices.Equal(entries, []string{".spare"}) {
				t.Errorf("%s: the trash has %v", about, entries)
			}
			n.consistent(t, about+", purged")
		},
	}
}

// withUntracked has a directory that another driver made, and a node that has seen it.
func withUntracked(t *testing.T, n *node) {
	t.Helper()
	n.disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
}

func adopting() operation {
	return operation{
		name: "adopt", prepare: withUntracked, cluster: []string{"pvc-1"}, remade: true,
		run:  func(ctx context.Context, n *node) error { return n.AdoptUntracked(ctx) },
		look: lookAdopted,
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := n.AdoptUntracked(t.Context()); err != nil {
				t.Errorf("%s: adopt again: %v", about, err)
			}
			lookAdopted(t, n, true, about+", adopted again")
		},
	}
}

func adoptingByHand() operation {
	op := adopting()
	op.name, op.cluster = "adopt by hand", nil
	op.run = func(ctx context.Context, n *node) error {
		_, err := n.Adopt(ctx, "pvc-1", mebibyte)
		return err
	}
	op.again = func(t *testing.T, n *node, about string) {
		t.Helper()
		if r, err := n.Adopt(t.Context(), "pvc-1", mebibyte); err != nil || r.Bytes != mebibyte {
			t.Errorf("%s: adopt again: %+v, %v", about, r, err)
		}
		lookAdopted(t, n, true, about+", adopted again")
	}
	return op
}

func lookAdopted(t *testing.T, n *node, done bool, about string) {
	t.Helper()
	n.kept(t, "pvc-1", about)
	if !done {
		return
	}
	n.consistent(t, about)
	if v, _, err := n.Get(t.Context(), "pvc-1"); err != nil || !v.Adopted {
		t.Errorf("%s: the record that was answered is gone: %+v, %v", about, v, err)
	}
}
