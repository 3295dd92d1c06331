package volume_test

import (
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// snapshotID is an id as snapshots have them.
const snapshotID = "snap-6f9619ff-8b86-d011-b42d-00cf4fc964ff.0123456789"

// withSnapshot has a volume, and a snapshot as it is on the disk.
func withSnapshot(t *testing.T) *node {
	t.Helper()
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	d.AddFile(poolPath+"/csi/"+store.Path(snapshotID), []byte(`{"version":2,"id":"`+snapshotID+
		`","kind":"snapshot","source":{"id":"pvc-1"},"bytes":4096,"onDelete":"purge"}`))
	d.AddFile(poolPath+"/csi/"+snapshotID+"/precious", []byte("kept"))
	return warm(t, d)
}

// TestASnapshotIsNoVolume: whatever is asked of a volume with a snapshot's id, it is not found, and nothing is touched.
func TestASnapshotIsNoVolume(t *testing.T) {
	n := withSnapshot(t)
	ctx := t.Context()
	ignored := func(_ any, err error) error { return err }
	for name, do := range map[string]func() error{
		"publish": func() error { return n.Publish(ctx, publish(snapshotID, target)) },
		"expand":  func() error { return ignored(n.Expand(ctx, snapshotID, 2*mebibyte, 0)) },
		"get":     func() error { _, _, err := n.Get(ctx, snapshotID); return err },
		"stats":   func() error { return ignored(n.Stats(ctx, snapshotID, target)) },
		"enforce": func() error { return n.Enforce(ctx, snapshotID, nil, func(int64) {}) },
		"adopt":   func() error { return ignored(n.Adopt(ctx, snapshotID, mebibyte)) },
		"discard": func() error { return n.Discard(ctx, snapshotID, "", 0) },
	} {
		t.Run(name, func(t *testing.T) { wants(t, do(), store.ErrNotFound, snapshotID) })
	}
	must(t, n.Delete(ctx, snapshotID), n.Unpublish(ctx, snapshotID, target)) // as of any id that is not there
	if in, found, err := n.Has(ctx, snapshotID); found || in != "" || err != nil {
		t.Errorf("has: %q, %v, %v", in, found, err)
	}
	n.Cluster = naming(snapshotID) // a PersistentVolume that says so makes no difference
	wants(t, n.Publish(ctx, publish(snapshotID, target)), store.ErrNotFound, snapshotID)
	must(t, n.Delete(ctx, snapshotID))
	n.kept(t, snapshotID, "asked for as a volume")
	var ids []string
	must(t, n.Each(ctx, func(v nodeapi.VolumeStatus) error { ids = append(ids, v.ID, v.SnapshotOf); return nil }))
	listed, _, err := n.List(ctx, "", 0)
	if err != nil || len(listed) != 1 || !slices.Equal(ids, []string{"pvc-1", "", snapshotID, "pvc-1"}) {
		t.Errorf("listed %v, %v, %v", ids, listed, err)
	}
	if s := n.status(); s.Promised != mebibyte || s.Volumes != 1 {
		t.Errorf("%d volumes with %d bytes, want those of the volume alone", s.Volumes, s.Promised)
	}
}

// TestAVolumeIsNoSnapshot: nor is it one for who asks for a snapshot with its id.
func TestAVolumeIsNoSnapshot(t *testing.T) {
	n := warm(t, newDisk())
	withVolume(t, n)
	ctx := t.Context()
	_, err := n.GetSnapshot(ctx, "pvc-1")
	wants(t, err, store.ErrNotFound, "pvc-1")
	wants(t, sized(t, n, "pvc-2", 1, fromSnapshot("pvc-1")), store.ErrNotFound, "pvc-1")
	if listed, _, err := n.Snapshots(ctx, "", "", 0); len(listed) > 0 || err != nil {
		t.Errorf("listed %v, %v", listed, err)
	}
	must(t, n.DeleteSnapshot(ctx, "pvc-1"))
	n.kept(t, "pvc-1", "deleted as a snapshot")
	n.consistent(t, "deleted as a snapshot")
}

// TestNoVolumeIsNamedAsASnapshot, with one of that name there or not.
func TestNoVolumeIsNamedAsASnapshot(t *testing.T) {
	n := withSnapshot(t)
	for _, id := range []string{snapshotID, "snap-.ffffffffff", "snap-a.b.0000000000"} {
		_, err := n.Create(t.Context(), spec(id))
		wants(t, err, volume.ErrInvalid, "name", id)
	}
	for _, id := range []string{"snap-1", "snap-1.012345678", "snap-1.012345678G", "a-snap-1.0123456789"} {
		mustCreate(t, n, id)
	}
}
