package volume_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// entries are those of an id in the trash, the oldest first.
func (n *node) entries(t reporter, id string) []string {
	t.Helper()
	return slices.DeleteFunc(n.ls(t, disk.TrashDir), func(e string) bool { return !strings.HasPrefix(e, id+".") })
}

func withDeleted(t *testing.T, n *node) {
	t.Helper()
	withVolume(t, n)
	must(t, n.Delete(t.Context(), "pvc-1"))
}

// undeleting is what an admin does about what was deleted by mistake. Asked again, it says that it is there.
func undeleting() operation {
	run := func(ctx context.Context, n *node) error {
		d, err := n.host.Open(n.specs[0].Path)
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }()
		entries, err := store.ListTrash(d)
		if err != nil {
			return err
		}
		err = store.ErrNotFound
		for _, e := range entries {
			if _, err = n.Undelete(ctx, e.Name); err == nil {
				return nil
			}
		}
		_, health, gone := n.Get(ctx, "pvc-1")
		back := gone == nil && health.Condition == volume.Healthy
		if back && (errors.Is(err, store.ErrNotFound) || errors.Is(err, volume.ErrExists)) {
			return nil
		}
		return err
	}
	return operation{
		name: "undelete", prepare: withDeleted, run: run, finishes: true,
		look: func(t *testing.T, n *node, done bool, about string) { // back, or deleted as before
			t.Helper()
			n.consistent(t, about)
			_, health, err := n.Get(t.Context(), "pvc-1")
			back := err == nil && health.Condition == volume.Healthy
			if !back && (done || !errors.Is(err, store.ErrNotFound)) {
				t.Errorf("%s: %+v, %v (answered: %v)", about, health, err, done)
			}
			content, places := n.find(t, "pvc-1")
			if content != "kept" || (back && places[0] != "pvc-1/precious") {
				t.Errorf("%s: data %q is at %v, want it kept", about, content, places)
			}
		},
		again: func(t *testing.T, n *node, about string) {
			t.Helper()
			if err := run(t.Context(), n); err != nil {
				t.Errorf("%s: undelete again: %v", about, err)
			}
			content, places := n.find(t, "pvc-1")
			if content != "kept" || places[0] != "pvc-1/precious" {
				t.Errorf("%s: data %q is at %v, want it back", about, content, places)
			}
			n.consistent(t, about+", undeleted again")
		},
	}
}

func TestUndelete(t *testing.T) {
	n := warm(t, newDisk())
	withDeleted(t, n)
	entry := n.entries(t, "pvc-1")[0]
	var listed []nodeapi.DeletedVolume
	list := func() []nodeapi.DeletedVolume {
		listed = nil
		must(t, n.EachDeleted(t.Context(), func(v nodeapi.DeletedVolume) error {
			listed = append(listed, v)
			return nil
		}))
		return listed
	}
	want := nodeapi.DeletedVolume{
		Entry: entry, ID: "pvc-1", Pool: "local", Claim: "ns/claim", Bytes: mebibyte, Deleted: n.clock.Now(),
		Due: n.clock.Now().Add(time.Hour),
	}
	if got := list(); len(got) != 1 || !got[0].Deleted.Equal(want.Deleted) || !got[0].Due.Equal(want.Due) {
		t.Fatalf("listed %+v", got)
	}
	listed[0].Deleted, listed[0].Due = want.Deleted, want.Due
	if listed[0] != want {
		t.Errorf("listed %+v, want %+v", listed[0], want)
	}
	r, err := n.Undelete(t.Context(), entry)
	if err != nil || r.ID != "pvc-1" || r.Pool != "local" || r.Bytes != mebibyte || r.Claim.Name != "claim" {
		t.Fatalf("%+v, %v", r, err)
	}
	n.kept(t, "pvc-1", "undeleted")
	n.consistent(t, "undeleted")
	if left := n.ls(t, disk.TrashDir); !slices.Equal(left, []string{".spare"}) || len(list()) > 0 {
		t.Errorf("the trash has %v", left)
	}
	_, err = n.Undelete(t.Context(), entry)
	wants(t, err, store.ErrNotFound, entry)
	n.clock.advance(2 * time.Hour)
	must(t, n.purge(t.Context()), n.Publish(t.Context(), publish("pvc-1", target)),
		n.Unpublish(t.Context(), "pvc-1", target))
	n.kept(t, "pvc-1", "purged and published")
	must(t, n.Delete(t.Context(), "pvc-1"))
	inTrashOnly(t, n, "deleted again")
}

// TestUndeleteRefuses what would harm somebody, and leaves all as it was.
func TestUndeleteRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		arrange  func(t *testing.T, n *node, entry string)
		sentinel error
		says     string
	}{
		"a PersistentVolume": {func(_ *testing.T, n *node, _ string) {
			n.Cluster = naming("pvc-1")
		}, nodeapi.ErrNamed, "pvc-1"},
		"another driver's PersistentVolume": {func(_ *testing.T, n *node, _ string) {
			n.Cluster = &cluster{others: map[string]string{"pvc-1": "theirs"}}
		}, nodeapi.ErrNamed, "theirs"},
		"nobody knows of PersistentVolumes": {func(_ *testing.T, n *node, _ string) {
			n.Cluster = &cluster{err: nodeapi.ErrClusterUnknown}
		}, nodeapi.ErrClusterUnknown, "pvc-1"},
		"a volume of its id": {
			func(t *testing.T, n *node, _ string) { mustCreate(t, n, "pvc-1") },
			volume.ErrExists, "kubectl hpp adopt pvc-1",
		},
		"a directory of its id": {func(_ *testing.T, n *node, _ string) {
			n.disk.AddDir(poolPath + "/csi/pvc-1")
		}, volume.ErrExists, "pvc-1"},
		"its purge has begun": {func(t *testing.T, n *node, entry string) {
			begin := func(o *pool.Open) error { return store.BeginPurge(o.Disk, entry) }
			must(t, n.set.Use(t.Context(), "local", begin))
		}, store.ErrUndeletable, "purge"},
		"its data is gone": {func(t *testing.T, n *node, entry string) {
			d := n.open(t)
			defer func() { _ = d.Close() }()
			must(t, d.Rename(path.Join(disk.TrashDir, entry, "data"), "elsewhere"))
		}, store.ErrUndeletable, "data"},
		"its record is a newer driver's": {func(_ *testing.T, n *node, entry string) {
			n.disk.AddFile(poolPath+"/csi/"+path.Join(disk.TrashDir, entry, "record.json"), []byte(`{"version":5}`))
		}, store.ErrNewer, "install the driver that wrote it"},
		"it is another volume's": {rewrite(`"version":2,"id":"pvc-2"`), store.ErrBroken, "pvc-2"},
		"it is a snapshot": {
			rewrite(`"version":3,"id":"pvc-1","kind":"snapshot","source":{"id":"pvc-9"}`), store.ErrUndeletable,
			"no volume",
		},
		"it was inline": {rewrite(`"version":2,"id":"pvc-1","ephemeral":true`), store.ErrUndeletable, "inline"},
		"it was never whole": {
			rewrite(`"version":2,"id":"pvc-1","source":{"id":"pvc-9"}`), store.ErrUndeletable,
			"never whole",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := warm(t, newDisk())
			withDeleted(t, n)
			entry := n.entries(t, "pvc-1")[0]
			test.arrange(t, n, entry)
			before := n.disk.Calls()
			_, err := n.Undelete(t.Context(), entry)
			wants(t, err, test.sentinel, test.says)
			if calls := n.disk.Calls(); calls != before {
				t.Errorf("it changed something: %v", n.disk.Trace())
			}
		})
	}
}

// rewrite replaces the record of an entry.
func rewrite(fields string) func(*testing.T, *node, string) {
	return func(_ *testing.T, n *node, entry string) {
		n.disk.AddFile(poolPath+"/csi/"+path.Join(disk.TrashDir, entry, "record.json"), []byte("{"+fields+"}"))
	}
}

// TestUndeleteWhat is no name of an entry, or none that is there.
func TestUndeleteWhat(t *testing.T) {
	n := warm(t, newDisk())
	for entry, sentinel := range map[string]error{
		"": volume.ErrInvalid, "pvc-1": volume.ErrInvalid, "pvc-1.x": volume.ErrInvalid, "../x.1": volume.ErrInvalid,
		"pvc-1.1": store.ErrNotFound,
	} {
		_, err := n.Undelete(t.Context(), entry)
		wants(t, err, sentinel, entry)
	}
	n.disk.ReplaceByEmpty(poolPath)
	_, err := n.Undelete(t.Context(), "pvc-1.1")
	wants(t, err, pool.ErrAbsent, "pvc-1.1")
}

// TestUndeleteBetweenSlices of the entry's purge is refused: part of the data is gone.
func TestUndeleteBetweenSlices(t *testing.T) {
	n := warm(t, newDisk())
	withVolume(t, n)
	for i := range 10_000 { // more than a slice removes
		n.disk.AddFile(fmt.Sprintf("%s/csi/pvc-1/%d", poolPath, i), nil)
	}
	must(t, n.Delete(t.Context(), "pvc-1"))
	entry := n.entries(t, "pvc-1")[0]
	n.clock.advance(2 * time.Hour)
	must(t, n.purge(t.Context()))
	_, err := n.Undelete(t.Context(), entry)
	wants(t, err, store.ErrUndeletable, "purge", entry)
	must(t, n.EachDeleted(t.Context(), func(v nodeapi.DeletedVolume) error {
		t.Errorf("listed: %+v", v)
		return nil
	}))
	n = warm(t, n.disk.Crash()) // which forgets no beginning
	_, err = n.Undelete(t.Context(), entry)
	wants(t, err, store.ErrUndeletable, "purge", entry)
	for range 10 {
		n.clock.advance(2 * time.Hour)
		must(t, n.purge(t.Context()))
	}
	if left := n.entries(t, "pvc-1"); len(left) > 0 {
		t.Errorf("the trash has %v", left)
	}
}

// TestUndeleteWithoutRoom: a pool that has promised all takes nothing back, and purges nothing for it.
func TestUndeleteWithoutRoom(t *testing.T) {
	spec := retained("local", poolPath)
	spec.MaxVolumes, spec.Trash.PurgeWhenFull = 1, true
	n := warm(t, newDisk(), withPools(spec))
	withDeleted(t, n)
	entry := n.entries(t, "pvc-1")[0]
	mustCreate(t, n, "pvc-2")
	_, err := n.Undelete(t.Context(), entry)
	wants(t, err, ledger.ErrNoSpace, "maxVolumes")
	must(t, n.Delete(t.Context(), "pvc-2"))
	if _, err = n.Undelete(t.Context(), entry); err != nil {
		t.Error(err)
	}
	n.kept(t, "pvc-1", "there is room again")
}

// TestUndeleteInASharedPool: only the node whose trash it is in brings a volume back.
func TestUndeleteInASharedPool(t *testing.T) {
	d := network()
	a, b := member(t, d, "a", nil), member(t, d, "b", nil)
	must(t, openPool(t.Context(), a), openPool(t.Context(), b))
	withDeleted(t, a)
	entry := list(t, a.open(t), disk.TrashDir+"/a")[1]
	_, err := b.Undelete(t.Context(), entry)
	wants(t, err, store.ErrUndeletable, entry, "node a", "--node a")
	if _, err = a.Undelete(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	b.sharedKept(t, "undeleted by the other")
	a.sharedKept(t, "undeleted")
}

// TestUndeleteOfAnInterruptedDelete brings back what a delete has left in the middle that failed.
func TestUndeleteOfAnInterruptedDelete(t *testing.T) {
	n := warm(t, newDisk())
	withVolume(t, n)
	n.disk.FailAt(6, syscall.EIO) // the move of the record, after that of the data
	wants(t, n.Delete(t.Context(), "pvc-1"), syscall.EIO)
	if _, err := n.Undelete(t.Context(), n.entries(t, "pvc-1")[0]); err != nil {
		t.Fatal(err)
	}
	n.kept(t, "pvc-1", "undeleted")
	n.consistent(t, "undeleted")
}
