package volume_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestDeleteIsNotAnsweredForAPoolThatComesBackMeanwhile: a pool that was absent when it was asked makes the answer uncertain, even
// if it is there a moment later.
func TestDeleteIsNotAnsweredForAPoolThatComesBackMeanwhile(t *testing.T) {
	disk := newDisk(t)
	disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	silent := knowing("pvc-1")
	silent.err = volume.ErrClusterUnknown
	n := start(t, disk, withCluster(silent))
	silent.asked = func() { silent.err = nil }
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPoolAbsent, "pool local")
	if content, places := n.find(t, "pvc-1"); content != "kept" || !slices.Equal(places, []string{"pvc-1/precious"}) {
		t.Errorf("data %q at %v", content, places)
	}
}

// TestUnselectedNodeServesWhatTheClusterKnows: a nodeSelector stops creation only, also on a node that was taken over or whose state
// was lost.
func TestUnselectedNodeServesWhatTheClusterKnows(t *testing.T) {
	disk := newDisk(t)
	disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	ssd := retained("local", poolPath)
	ssd.NodeSelector = map[string]string{"disk": "ssd"}
	n := start(t, disk, withPools(ssd), withCluster(knowing("pvc-1")))
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPoolAbsent, "labels")
	n.set.SetNodeLabels(map[string]string{"disk": "hdd"})
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Errorf("publish: %v", err)
	}
	_, err := n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, volume.ErrPoolNotHere, "nodeSelector")
}

func TestAFullDiskCanBeEmptied(t *testing.T) {
	disk := newDisk(t)
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
	worker := n.worker(0)
	disk.SetFull(poolPath, true)
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Fatalf("delete on a full disk: %v", err)
	}
	if _, places := n.find(t, "pvc-1"); len(places) != 1 || !strings.HasPrefix(places[0], poolfs.TrashDir) {
		t.Errorf("data at %v, want it in the trash", places)
	}
	n.consistent(t, "deleted on a full disk")
	if s, err := worker.Purge(t.Context(), n.open(t)); err != nil || s.Entries != 0 {
		t.Errorf("purge on a full disk: %+v, %v", s, err)
	}
}

// TestASickPoolHarmsNoOther: what cannot be read in one pool keeps no pod of another from starting or ending.
func TestASickPoolHarmsNoOther(t *testing.T) {
	disk := newDisk(t)
	n := start(t, disk, withPools(retained("a", "/a"), retained("local", poolPath)))
	mustCreate(t, n, "pvc-1")
	s := spec("pvc-2")
	s.Pool = "a"
	if _, err := n.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	disk.AddDir("/a/csi/.hpp/volumes/pvc-1.json") // reading it is an error
	q := volume.PublishRequest{ID: "pvc-1", Target: target}
	if err := n.Publish(t.Context(), q); err != nil {
		t.Errorf("publish: %v", err)
	}
	if err := n.Unpublish(t.Context(), q.ID, q.Target); err != nil {
		t.Errorf("unpublish: %v", err)
	}
	if err := n.Delete(t.Context(), q.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// TestRequireMountIsNotFooledByTheRoot: a name csi in the host's root says nothing about which filesystem the root is.
func TestRequireMountIsNotFooledByTheRoot(t *testing.T) {
	yes := true
	needy := retained("local", poolPath)
	needy.RequireMount = &yes
	disk := newDisk(t)
	disk.AddDir(poolPath)
	disk.Symlink("/csi", "/etc")
	n := start(t, disk, withPools(needy))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolAbsent, "requireMount")
}

// TestDiskUnmountedWhileTheClusterAnswers: the marker goes onto the disk that was looked at, or nowhere.
func TestDiskUnmountedWhileTheClusterAnswers(t *testing.T) {
	yes := true
	needy := retained("local", poolPath)
	needy.RequireMount = &yes
	disk := newDisk(t)
	disk.Mount(poolPath)
	slow := &cluster{}
	n := start(t, disk, withPools(needy), withCluster(slow))
	slow.asked = func() {
		slow.asked = nil
		if err := disk.Unmount(poolPath); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolAbsent, "changed")
	if facts, err := disk.Inspect(poolPath); err != nil || facts.CSI {
		t.Errorf("something was made beneath the disk: %+v, %v", facts, err)
	}
	disk.Mount(poolPath)
	mustCreate(t, n, "pvc-1")
}

func TestAdoptionKeepsWhatTheClassWantedOnDelete(t *testing.T) {
	disk := newDisk(t)
	disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	known := knowing("pvc-1")
	known.pvs[0].OnDelete = volume.Retain
	n := start(t, disk, withCluster(known))
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if v, _, err := n.Get(t.Context(), "pvc-1"); err != nil || v.OnDelete != volume.Retain {
		t.Errorf("adopted volume %+v, %v; want onDelete retain", v, err)
	}
}

// TestTheAPIIsNotAskedAtEveryLook: a pool that waits is looked at all the time.
func TestTheAPIIsNotAskedAtEveryLook(t *testing.T) {
	asked := 0
	known := knowing("pvc-missing")
	known.asked = func() { asked++ }
	n := start(t, newDisk(t), withCluster(known))
	for range 20 {
		_, err := n.Create(t.Context(), spec("pvc-1"))
		wants(t, err, volume.ErrPoolAbsent, "pvc-missing")
	}
	if asked != 1 {
		t.Errorf("20 looks listed the PersistentVolumes %d times, want once", asked)
	}
}

// TestAReadOnlyDiskIsServed: a filesystem that turned read-only, as ext4 does after an error, still gives its data.
func TestAReadOnlyDiskIsServed(t *testing.T) {
	disk := newDisk(t)
	mustCreate(t, warm(t, disk), "pvc-1")
	disk.SetReadOnly(poolPath, true)
	n, err := tryStart(disk)
	if err == nil {
		err = n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target, MountOptions: volume.MountOptions{ReadOnly: true}})
	}
	if err != nil {
		t.Errorf("publish from a read-only disk: %v", err)
	}
}
