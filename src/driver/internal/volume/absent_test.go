package volume_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// unmounted is a pool whose disk this node never had.
func unmounted(name string) poolspec.Pool {
	yes := true
	p := retained(name, "/"+name)
	p.RequireMount = &yes
	return p
}

func TestAbsentPool(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")

	d.ReplaceByEmpty(poolPath)
	_, err := n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, pool.ErrAbsent, "pool local", poolPath, "kubectl hpp pool forget local")
	_, err = n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	wants(t, err, pool.ErrAbsent, poolPath)
	wants(t, n.Delete(t.Context(), "pvc-1"), pool.ErrAbsent, poolPath)
	wants(t, n.Delete(t.Context(), "pvc-unknown"), pool.ErrAbsent, poolPath)
	wants(t, n.Discard(t.Context(), "pvc-1", "", 0), pool.ErrAbsent, poolPath)
	wants(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}), pool.ErrAbsent, poolPath)
	wants(t, n.Publish(t.Context(), publish("pvc-1", target)), pool.ErrAbsent)
	if room, largest := n.set.Capacity("local"); room != 0 || largest != 0 {
		t.Errorf("capacity %d, %d; want 0", room, largest)
	}
	if volumes, _, err := n.List(t.Context(), "", 0); err != nil || len(volumes) > 0 {
		t.Errorf("list: %v, %v", volumes, err)
	}
	if s := n.status(); s.Reason != "MarkerMissing" || !strings.Contains(s.Message, poolPath) {
		t.Errorf("%+v", s)
	}

	d.PutBack(poolPath)
	mustCreate(t, n, "pvc-2")
	n.kept(t, "pvc-1", "the pool is back")
	n.consistent(t, "the pool is back")
}

// TestPoolThatNeverWasHere does not keep a delete of what nobody knows from ending, unless a PersistentVolume names it.
func TestPoolThatNeverWasHere(t *testing.T) {
	demanding := retained("other", "/other") // an in-memory disk has no quota
	demanding.Quota = poolspec.QuotaRequired
	for name, other := range map[string]poolspec.Pool{"no disk": unmounted("other"), "no quota": demanding} {
		t.Run(name, func(t *testing.T) {
			c := naming("pvc-1", "pvc-2")
			c.pvs[0].Pool, c.pvs[1].Pool = "other", "" // which is not said to be in any pool
			n := start(t, newDisk(), withPools(retained("local", poolPath), other))
			must(t, openPool(t.Context(), n), n.Delete(t.Context(), "pvc-unknown"))
			n.Cluster = c
			must(t, n.Delete(t.Context(), "pvc-unknown"))
			wants(t, n.Delete(t.Context(), "pvc-2"), pool.ErrAbsent, "pool other")
			wants(t, n.Delete(t.Context(), "pvc-1"), pool.ErrAbsent, "pool other")
			wants(t, n.Publish(t.Context(), inPool("pvc-1", "other")), pool.ErrAbsent, "pool other")
			must(t, n.set.Forget(t.Context(), "other"), n.Delete(t.Context(), "pvc-1"),
				n.Delete(t.Context(), "pvc-2"))
			for _, s := range n.set.Status() {
				if s.Name == "other" && (s.Used || s.Served()) {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// TestPoolOfNoConfiguration that a PersistentVolume names: its volumes may be there when it is configured again.
func TestPoolOfNoConfiguration(t *testing.T) {
	c := naming("pvc-1")
	c.pvs[0].Pool = "gone"
	n := start(t, newDisk(), withCluster(c))
	must(t, openPool(t.Context(), n))
	wants(t, n.Delete(t.Context(), "pvc-1"), pool.ErrAbsent, "pool gone", "kubectl hpp pool forget gone")
	must(t, n.set.Forget(t.Context(), "gone"), n.Delete(t.Context(), "pvc-1"))
}

func TestDiskMountedOverAPool(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	d.Mount(poolPath)
	wants(t, n.Delete(t.Context(), "pvc-1"), pool.ErrAbsent, poolPath)
	must(t, n.set.Forget(t.Context(), "local"))
	mustCreate(t, n, "pvc-2")
	wants(t, n.set.Forget(t.Context(), "local"), pool.ErrPresent, "local")
	if err := d.Unmount(poolPath); err != nil {
		t.Fatalf("the driver keeps the disk busy: %v", err)
	}
	wants(t, n.Delete(t.Context(), "pvc-2"), pool.ErrAbsent, "another filesystem")
}

func TestNoMarkerWhereVolumesAreMissing(t *testing.T) {
	n := start(t, newDisk(), withCluster(naming("pvc-1", "pvc-2")))
	_, err := n.Create(t.Context(), spec("pvc-3"))
	wants(t, err, pool.ErrAbsent, "pvc-1, pvc-2", "kubectl hpp pool forget local")
	must(t, n.set.Forget(t.Context(), "local"))
	mustCreate(t, n, "pvc-3")
}

func TestNoMarkerWithoutTheAPI(t *testing.T) {
	silent := &cluster{err: nodeapi.ErrClusterUnknown}
	n := start(t, newDisk(), withCluster(silent))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, pool.ErrAbsent, "waiting for the Kubernetes API")
	silent.silence(nil)
	n.clock.advance(time.Minute)
	mustCreate(t, n, "pvc-1")
}

// TestPoolTakenOutOfTheConfiguration serves what it has; once that is deleted, it can be forgotten.
func TestPoolTakenOutOfTheConfiguration(t *testing.T) {
	d := newDisk()
	old := start(t, d, withPools(retained("local", poolPath), retained("other", "/other")))
	in := func(id string) volume.Spec { s := spec(id); s.Pool = "other"; return s }
	for _, id := range []string{"pvc-1", "pvc-2"} {
		_, err := old.Create(t.Context(), in(id))
		must(t, err)
	}
	d.AddDir("/other/csi/pvc-taken-over")
	c := naming("pvc-taken-over")
	c.pvs[0].Pool = "other"
	n := warm(t, d, withCluster(c))
	must(t, n.openPool(t.Context(), "other"), n.AdoptUntracked(t.Context()))
	for _, id := range []string{"pvc-1", "pvc-taken-over"} {
		must(t, n.Publish(t.Context(), publish(id, target)), n.Unpublish(t.Context(), id, target))
		v, err := n.Expand(t.Context(), id, 2*mebibyte, 0)
		if err != nil || v.Bytes != 2*mebibyte || v.Pool != "other" {
			t.Errorf("expand: %+v, %v", v, err)
		}
	}
	if volumes, _, err := n.List(t.Context(), "", 0); err != nil || len(volumes) != 3 {
		t.Errorf("list: %v, %v", volumes, err)
	}
	if v, err := n.Create(t.Context(), in("pvc-2")); err != nil || v.ID != "pvc-2" { // its answer was lost
		t.Errorf("%+v, %v", v, err)
	}
	_, err := n.Create(t.Context(), in("pvc-3"))
	wants(t, err, ledger.ErrClosed, "the configuration no longer has pool other")
	must(t, n.Delete(t.Context(), "pvc-1"), n.Delete(t.Context(), "pvc-2"), n.Delete(t.Context(), "pvc-unknown"))
	wants(t, n.set.Forget(t.Context(), "other"), pool.ErrPresent, "pvc-taken-over", "delete their claims")
	must(t, n.Delete(t.Context(), "pvc-taken-over"), n.set.Forget(t.Context(), "other"))
	_, err = n.Create(t.Context(), in("pvc-3"))
	wants(t, err, pool.ErrUnknown, "storagePool", "local")
}

// TestARenamedPool has the volumes of PersistentVolumes that name it by the name that it had.
func TestARenamedPool(t *testing.T) {
	d := newDisk()
	mustCreate(t, start(t, d), "pvc-1")
	d.AddDir(poolPath + "/csi/pvc-2")
	n := start(t, d, withPools(retained("nvme", poolPath)), withCluster(naming("pvc-1", "pvc-2")))
	must(t, n.openPool(t.Context(), "nvme"))
	for _, id := range []string{"pvc-1", "pvc-2"} {
		must(t, n.Publish(t.Context(), publish(id, target)), n.Unpublish(t.Context(), id, target),
			n.Delete(t.Context(), id))
	}
	if left := n.ls(t, "."); !slices.Equal(left, []string{disk.MetaDir}) {
		t.Errorf("csi/ has %v", left)
	}
}

// TestDiscardOfWhatAnotherNodeMayHave: two nodes show one filesystem as the pool of each.
func TestDiscardOfWhatAnotherNodeMayHave(t *testing.T) {
	n := warm(t, newDisk())
	mustCreate(t, n, "pvc-1")
	n.set.SetExpected(map[string]guard.Expected{"local": {Twins: []string{"b", "c"}}})
	wants(t, n.Discard(t.Context(), "pvc-1", "", 0), nodeapi.ErrNamed,
		"node b, c has pool local on the same filesystem")
	n.set.SetExpected(nil)
	must(t, n.Discard(t.Context(), "pvc-1", "", 0))
}

func TestReinstalledNodeAdoptsThePool(t *testing.T) {
	d := newDisk()
	mustCreate(t, warm(t, d), "pvc-1")
	d.ReplaceByEmpty(statePath)
	n := warm(t, d)
	if _, _, err := n.Get(t.Context(), "pvc-1"); err != nil {
		t.Errorf("the volume is not served: %v", err)
	}
	n.consistent(t, "reinstalled")
}

func TestNodeSelectorStopsCreationOnly(t *testing.T) {
	d := newDisk()
	ssd := retained("local", poolPath)
	ssd.NodeSelector = map[string]string{"disk": "ssd"}
	n := start(t, d, withPools(ssd))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, pool.ErrAbsent, "labels")
	n.set.SetNodeLabels(nil)
	_, err = n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, pool.ErrNotHere, "local")
	if facts, err := d.Inspect(poolPath); err != nil || facts.Path {
		t.Errorf("%s was made on a node that is not selected: %+v, %v", poolPath, facts, err)
	}
	n.set.SetNodeLabels(map[string]string{"disk": "ssd"})
	mustCreate(t, n, "pvc-1")
	n.set.SetNodeLabels(map[string]string{"disk": "hdd"})
	if _, err = n.Create(t.Context(), spec("pvc-2")); err == nil {
		t.Error("a volume was made on a node that is no longer selected")
	}
	must(t, n.Publish(t.Context(), publish("pvc-1", target)), n.Unpublish(t.Context(), "pvc-1", target),
		n.Delete(t.Context(), "pvc-1"))
}

func TestTwoPoolsOneDirectory(t *testing.T) {
	d := newDisk()
	d.Symlink("/again", poolPath)
	n := start(t, d, withPools(retained("again", "/again"), retained("local", poolPath)))
	must(t, openPool(t.Context(), n))
	s := spec("pvc-1")
	s.Pool = "again"
	_, err := n.Create(t.Context(), s)
	wants(t, err, pool.ErrAbsent, "directory of pool local")
}
