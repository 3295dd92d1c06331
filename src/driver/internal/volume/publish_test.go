package volume_test

import (
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func TestPublish(t *testing.T) {
	n := start(t, newDisk())
	mustCreate(t, n, "pvc-1")
	mustCreate(t, n, "pvc-2")
	q := publish("pvc-1", target)
	q.NoExec, q.Atime = true, "noatime"
	must(t, n.Publish(t.Context(), q))
	if err := n.Publish(t.Context(), q); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := n.Publish(t.Context(), publish("pvc-1", target)); err != nil {
		t.Errorf("fewer options than it has: %v", err)
	}
	readOnly, nosuid, relatime := q, q, q
	readOnly.ReadOnly, nosuid.NoSUID, relatime.Atime = true, true, "relatime"
	for _, other := range []volume.PublishRequest{readOnly, nosuid, relatime} {
		wants(t, n.Publish(t.Context(), other), volume.ErrTargetTaken, target, "options")
	}
	wants(t, n.Publish(t.Context(), publish("pvc-2", target)), volume.ErrTargetTaken, target)
	wants(t, n.Publish(t.Context(), publish("pvc-3", target)), store.ErrNotFound, "pvc-3")
	wants(t, n.Publish(t.Context(), publish("../x", target)), nodeapi.ErrInvalidID)
	wants(t, n.Unpublish(t.Context(), "../x", target), nodeapi.ErrInvalidID)
}

func TestSingleWriter(t *testing.T) {
	n := start(t, newDisk())
	mustCreate(t, n, "pvc-1")
	q := publish("pvc-1", target)
	q.SingleWriter = true
	must(t, n.Publish(t.Context(), q), n.Publish(t.Context(), q))
	q.Target = second
	wants(t, n.Publish(t.Context(), q), volume.ErrSingleWriter, target)
	if err := n.Publish(t.Context(), publish("pvc-1", second)); err != nil {
		t.Errorf("a second target for many writers: %v", err)
	}
	must(t, n.Unpublish(t.Context(), "pvc-1", second), n.mounts.Unmount(target)) // somebody else unmounts that
	if err := n.Publish(t.Context(), q); err != nil {
		t.Errorf("after the other pod has gone: %v", err)
	}
}

func TestStats(t *testing.T) {
	n := start(t, newDisk())
	mustCreate(t, n, "pvc-1")
	_, err := n.Stats(t.Context(), "pvc-1", target)
	wants(t, err, store.ErrNotFound, target)
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	s, err := n.Stats(t.Context(), "pvc-1", target)
	if err != nil || s.Bytes != 100<<30 || s.BytesUsed != 20<<30 || s.BytesAvailable != 80<<30 || s.Inodes == 0 {
		t.Errorf("%+v, %v; want those of the filesystem", s, err)
	}
	_, err = n.Stats(t.Context(), "pvc-9", target)
	wants(t, err, store.ErrNotFound, "pvc-9")
}

func TestInlineVolumeLivesAsLongAsItsPod(t *testing.T) {
	n := start(t, newDisk())
	for range 2 {
		must(t, n.Publish(t.Context(), inline("pvc-1")))
	}
	if got := n.ls(t, "."); !slices.Equal(got, []string{disk.MetaDir, "pvc-1"}) {
		t.Errorf("csi/ has %v", got)
	}
	for range 2 {
		must(t, n.Unpublish(t.Context(), "pvc-1", target))
	}
	n.gone(t, "unpublished")
}

// TestInlineVolumeOfTwoTargets is deleted with the last.
func TestInlineVolumeOfTwoTargets(t *testing.T) {
	n := start(t, newDisk())
	must(t, n.Publish(t.Context(), inline("pvc-1")))
	q := inline("pvc-1")
	q.Target = second
	must(t, n.Publish(t.Context(), q), n.Unpublish(t.Context(), "pvc-1", target))
	if _, _, err := n.Get(t.Context(), "pvc-1"); err != nil {
		t.Errorf("it is mounted at %s: %v", second, err)
	}
	must(t, n.Unpublish(t.Context(), "pvc-1", second))
	n.gone(t, "unpublished")
}

func TestInlineVolumeNeedsOnlyItsOwnPool(t *testing.T) {
	n := start(t, newDisk(), withPools(retained("local", poolPath), unmounted("other")))
	must(t, n.Publish(t.Context(), inline("pvc-1")))
	q := inline("pvc-2")
	q.Inline.Pool, q.Target = "other", second
	wants(t, n.Publish(t.Context(), q), pool.ErrAbsent, "pool other", "requireMount")
	persistent := inline("pvc-3")
	persistent.Target = second
	mustCreate(t, n, "pvc-3")
	wants(t, n.Publish(t.Context(), persistent), volume.ErrExists, "persistent")
}

// TestUnpublishNeverDeletesAPersistentVolume holds even for an id that looks like an inline one.
func TestUnpublishNeverDeletesAPersistentVolume(t *testing.T) {
	n := start(t, newDisk())
	mustCreate(t, n, "csi-looks-inline")
	n.fill(t, "csi-looks-inline")
	must(t, n.Publish(t.Context(), publish("csi-looks-inline", target)),
		n.Unpublish(t.Context(), "csi-looks-inline", target))
	n.kept(t, "csi-looks-inline", "unpublished")
}

// TestUnpublishNeverWaitsForAPool: neither one that is absent, nor one that has nothing to do with it.
func TestUnpublishNeverWaitsForAPool(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	must(t, n.Publish(t.Context(), publish("pvc-1", second)))
	d.ReplaceByEmpty(poolPath)
	restarted := start(t, d, withMounts(n.mounts))
	for at, n := range map[string]*node{target: n, second: restarted} {
		if err := n.Unpublish(t.Context(), "pvc-1", at); err != nil {
			t.Errorf("an absent pool keeps a pod from ending: %v", err)
		}
		if mount, _ := n.mounts.Inspect(at); mount.Mounted {
			t.Errorf("%s is mounted", at)
		}
	}
}
