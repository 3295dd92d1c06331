package volume_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// unasked is a cluster that nobody may ask.
type unasked struct{}

func (unasked) Get(context.Context, string) (nodeapi.PersistentVolume, bool, error) {
	panic("a PersistentVolume was asked for")
}

func (unasked) List(context.Context) ([]nodeapi.PersistentVolume, error) {
	panic("all PersistentVolumes were asked for")
}

func (unasked) OfOtherDriver(context.Context, string) (string, error) {
	panic("PersistentVolumes of other drivers were asked for")
}

// saying is what the controller says of a volume that a PersistentVolume of this node names, in a pool.
func saying(id, in string) *volume.Said {
	pv := naming(id).pvs[0]
	pv.Pool = in
	return &volume.Said{PV: pv, Named: true}
}

// inPool asks for a volume that its PersistentVolume says is in a pool.
func inPool(id, in string) volume.PublishRequest {
	q := publish(id, target)
	q.Pool = in
	return q
}

// TestWhatIsSaidIsNotAskedFor: a directory without a record is adopted and deleted, or grown, in one call.
func TestWhatIsSaidIsNotAskedFor(t *testing.T) {
	n := withForeign(t, "pvc-1", "pvc-2", "pvc-3", "pvc-4")
	mustCreate(t, n, "pvc-5")
	n.Cluster = unasked{}
	must(t, n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "local")))
	if _, places := n.find(t, "pvc-1"); len(places) != 1 || !strings.HasPrefix(places[0], disk.TrashDir) {
		t.Errorf("data of what was deleted is at %v", places)
	}
	must(t, n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "local")))
	v, err := n.Manager.Expand(t.Context(), "pvc-2", 2*mebibyte, 0, saying("pvc-2", ""))
	if err != nil || v.Bytes != 2*mebibyte || !v.Adopted {
		t.Errorf("expand: %+v, %v", v, err)
	}
	none := &volume.Said{}
	must(t, n.Manager.Delete(t.Context(), "pvc-3", none), n.Manager.Delete(t.Context(), "pvc-9", none))
	n.kept(t, "pvc-3", "no PersistentVolume names it")
	_, err = n.Manager.Expand(t.Context(), "pvc-3", 2*mebibyte, 0, none)
	wants(t, err, store.ErrNotFound, "pvc-3")
	wants(t, n.Manager.Delete(t.Context(), "pvc-4", saying("pvc-4", "gone")), pool.ErrAbsent, "pool gone")
	must(t, n.Manager.Delete(t.Context(), "pvc-5", none)) // the record decides
	if got := n.ls(t, "."); !slices.Equal(got, []string{disk.MetaDir, "pvc-2", "pvc-3", "pvc-4"}) {
		t.Errorf("csi/ has %v", got)
	}
	n.disk.ReplaceByEmpty(poolPath)
	for _, said := range []*volume.Said{none, saying("pvc-2", "local")} {
		wants(t, n.Manager.Delete(t.Context(), "pvc-2", said), pool.ErrAbsent, poolPath)
	}
}

// TestPublishWithoutARecord asks nobody; else it is as any other. Adoption comes later.
func TestPublishWithoutARecord(t *testing.T) {
	n := withForeign(t, "pvc-1", "snap-1")
	n.Cluster = unasked{}
	changed := n.set.Changed()
	q := inPool("pvc-1", "local")
	q.SingleWriter = true
	must(t, n.Publish(t.Context(), q), n.Publish(t.Context(), q))
	if mount, _ := n.mounts.Inspect(target); !mount.Mounted {
		t.Error("nothing is mounted")
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told to adopt it")
	}
	q.ReadOnly = true
	wants(t, n.Publish(t.Context(), q), volume.ErrTargetTaken, "pvc-1")
	q.Target = second
	wants(t, n.Publish(t.Context(), q), volume.ErrSingleWriter, target)
	wants(t, n.Publish(t.Context(), publish("pvc-9", second)), store.ErrNotFound, "pvc-9")
	wants(t, n.Publish(t.Context(), inPool("pvc-1", "gone")), pool.ErrAbsent, "pool gone")
	if len(n.records(t)) > 0 {
		t.Errorf("records: %v", n.records(t))
	}
	wants(t, n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "local")), volume.ErrPublished, target)
	must(t, n.Unpublish(t.Context(), "pvc-1", target))
	n.kept(t, "pvc-1", "unpublished")

	c := naming("pvc-1", "pvc-2")
	n.Cluster = c
	c.silence(silent())
	wants(t, n.Publish(t.Context(), publish("snap-1", target)), nodeapi.ErrClusterUnknown, "snap-1")
	own := inline("snap-1")
	wants(t, n.Publish(t.Context(), own), volume.ErrExists, "snap-1")
	n.disk.AddFile(poolPath+"/csi/pvc-2/precious", []byte("kept")) // restored since the driver started
	must(t, n.Publish(t.Context(), publish("pvc-2", second)))
	c.silence(nil)
	must(t, n.AdoptUntracked(t.Context()))
	if _, ok := n.records(t)["pvc-2"]; !ok || !slices.Equal(n.set.Untracked()["local"], []string{"snap-1"}) {
		t.Errorf("records %v, untracked %v", n.records(t), n.set.Untracked())
	}
}

// TestPublishWithoutARecordWhileAPoolIsAbsent: another pool's matters only where nobody says which pool is meant.
func TestPublishWithoutARecordWhileAPoolIsAbsent(t *testing.T) {
	d := newDisk()
	pools := withPools(retained("local", poolPath), retained("other", "/other"))
	was := warm(t, d, pools)
	must(t, was.openPool(t.Context(), "other"))
	d.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	d.ReplaceByEmpty("/other")
	n := warm(t, d, pools)
	n.Cluster = unasked{}
	wants(t, n.Publish(t.Context(), publish("pvc-1", target)), pool.ErrAbsent, "/other")
	wants(t, n.Publish(t.Context(), inPool("pvc-1", "other")), pool.ErrAbsent, "/other")
	must(t, n.Publish(t.Context(), inPool("pvc-1", "local")))
}

// TestPublishRestoresTheOnlyRecord of a directory that this driver made.
func TestPublishRestoresTheOnlyRecord(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
	files, record := n.open(t), store.Path("pvc-1")
	must(t, files.Rename(record, disk.Prepared(record)), files.Sync(disk.VolumesDir), files.Close())
	n = warm(t, d)
	n.Cluster = unasked{}
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	if r := n.records(t)["pvc-1"]; r.Adopted || r.Claim.Name != "claim" {
		t.Errorf("%+v", r)
	}
	n.consistent(t, "published")
}

// TestManyUntrackedDirectories, of which some are strangers': all are adopted that PersistentVolumes name.
func TestManyUntrackedDirectories(t *testing.T) {
	const ours, strangers = 5000, 2000
	var named, all []string
	for i := range ours + strangers {
		id := fmt.Sprintf("pvc-%d", i)
		if all = append(all, id); i%7 < 5 {
			named = append(named, id)
		}
	}
	n := withForeign(t, all...)
	n.Cluster = naming(named...)
	must(t, n.AdoptUntracked(t.Context()))
	if s := n.status(); s.Volumes != ours || s.Untracked != strangers || len(n.records(t)) != ours {
		t.Errorf("%d volumes, %d untracked, %d records", s.Volumes, s.Untracked, len(n.records(t)))
	}
}
