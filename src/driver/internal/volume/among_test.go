package volume_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// among asks for a volume in one of several pools.
func among(id string, pools ...string) volume.Spec {
	s := spec(id)
	s.Pool, s.Among, s.Parameters = "", pools, map[string]string{"storagePool": "nvme*"}
	return s
}

// twoDisks has the pools nvme0 and nvme1, each with a disk of its own; nvme0 has more room.
func twoDisks() *disktest.Disk {
	d := newDisk()
	for i, free := range []int64{64 * mebibyte, 32 * mebibyte} {
		at := fmt.Sprint("/nvme", i)
		d.Mount(at)
		d.SetSpace(at, disk.Space{Size: 128 * mebibyte, Free: free})
	}
	return d
}

func withTwoDisks() option {
	return withPools(retained("nvme0", "/nvme0"), retained("nvme1", "/nvme1"))
}

// lands wants a volume that is asked for to be in a pool.
func (n *node) lands(t *testing.T, id, in string) {
	t.Helper()
	if v, err := n.Create(t.Context(), among(id, "nvme0", "nvme1")); err != nil || v.Pool != in {
		t.Errorf("%s is in pool %q, %v; want %s", id, v.Pool, err, in)
	}
}

func (n *node) look(t *testing.T) {
	t.Helper()
	for _, s := range n.specs {
		if err := n.openPool(t.Context(), s.Name); err != nil && !errors.Is(err, pool.ErrAbsent) {
			t.Fatal(err)
		}
	}
}

// where are the pools that have a volume's directory.
func (n *node) where(t *testing.T, id string) (pools []string) {
	t.Helper()
	for _, s := range n.specs {
		d := n.openAt(t, s.Path)
		if _, err := d.Stat(id); err == nil {
			pools = append(pools, s.Name)
		}
		must(t, d.Close())
	}
	return pools
}

func TestSeveralDisks(t *testing.T) {
	d := twoDisks()
	n := start(t, d, withTwoDisks())
	n.lands(t, "pvc-1", "nvme0") // has most room
	d.SetSpace("/nvme0", disk.Space{Size: 128 * mebibyte, Free: mebibyte / 2})
	n.lands(t, "pvc-1", "nvme0") // is there already
	n.lands(t, "pvc-2", "nvme1") // the other has no room
	other := among("pvc-2", "nvme0", "nvme1")
	other.Bytes *= 2
	_, err := n.Create(t.Context(), other)
	wants(t, err, volume.ErrExists, "pvc-2 has capacity 1Mi, asked for 2Mi")
	_, err = n.Create(t.Context(), among("pvc-2", "nvme0"))
	wants(t, err, volume.ErrExists, "pvc-2 is in pool nvme1, asked for in pool nvme0")

	d.SetSpace("/nvme1", disk.Space{Size: 128 * mebibyte})
	_, err = n.Create(t.Context(), among("pvc-3", "nvme0", "nvme1"))
	wants(t, err, ledger.ErrNoSpace, "pool nvme0 has room for 512Ki", "; ", "pool nvme1 has room for 0")
	d.ReplaceByEmpty("/nvme0")
	_, err = n.Create(t.Context(), among("pvc-3", "nvme0", "nvme1"))
	wants(t, err, ledger.ErrNoSpace, "pool nvme0", "no csi/.hpp/pool.json", "; ", "pool nvme1 has room for 0")
	d.ReplaceByEmpty("/nvme1")
	_, err = n.Create(t.Context(), among("pvc-3", "nvme0", "nvme1"))
	wants(t, err, pool.ErrAbsent, "pool nvme0", "; ", "pool nvme1")
}

// TestRetryWhileADiskIsAway: the answer to a create is lost, and the disk that it was made on as well; then that comes
// back. There is one volume, which the PersistentVolume names, whoever asks; both go with it.
func TestRetryWhileADiskIsAway(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := twoDisks()
		c := &cluster{}
		n := start(t, d, withTwoDisks(), withCluster(c))
		n.lands(t, "pvc-1", "nvme0")
		d.ReplaceByEmpty("/nvme0")
		n.lands(t, "pvc-1", "nvme1")
		c.pvs = naming("pvc-1").pvs
		c.pvs[0].Pool = "nvme1"
		d.PutBack("/nvme0")
		if restarted {
			n = start(t, d, withTwoDisks(), withCluster(c))
		}
		n.look(t)
		if got := n.where(t, "pvc-1"); !slices.Equal(got, []string{"nvme0", "nvme1"}) {
			t.Fatalf("it is in %q", got)
		}
		n.servesTheNamedOne(t)

		d.ReplaceByEmpty("/nvme1") // what is left is another volume than the PersistentVolume's
		n.look(t)
		wants(t, n.Publish(t.Context(), inPool("pvc-1", "nvme1")), pool.ErrAbsent, "pool nvme1")
		wants(t, n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "nvme1")), pool.ErrAbsent, "pool nvme1")
		_, _, err := n.Get(t.Context(), "pvc-1")
		wants(t, err, pool.ErrAbsent, "pool nvme1")
		_, err = n.Snapshot(t.Context(), volume.SnapshotSpec{ID: "snap-1.0123456789", Volume: "pvc-1"})
		wants(t, err, pool.ErrAbsent, "pool nvme1")
		d.PutBack("/nvme1")
		n.look(t)

		if restarted { // an admin was there first
			must(t, n.Discard(t.Context(), "pvc-1", "", 0))
			if got := n.where(t, "pvc-1"); !slices.Equal(got, []string{"nvme1"}) {
				t.Errorf("its copy was discarded; it is in %q", got)
			}
			wants(t, n.Discard(t.Context(), "pvc-1", "", 0), nodeapi.ErrNamed, "pvc-1")
		}
		must(t, n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "nvme1")))
		if got := n.where(t, "pvc-1"); len(got) > 0 || len(n.set.Holders("pvc-1")) > 0 {
			t.Errorf("deleted, it is in %q", got)
		}
		n.consistent(t, "deleted")
	}
}

// servesTheNamedOne wants that pvc-1 is the volume in nvme1.
func (n *node) servesTheNamedOne(t *testing.T) {
	t.Helper()
	must(t, n.Publish(t.Context(), inPool("pvc-1", "nvme1")))
	at := n.openAt(t, "/nvme1")
	defer func() { _ = at.Close() }()
	info, err := at.Stat("pvc-1")
	must(t, err)
	if m, _ := n.mounts.Inspect(target); m.Dev != info.Dev || m.Ino != info.Ino {
		t.Errorf("mounted is %+v, want %+v", m, info)
	}
	if s, err := n.Stats(t.Context(), "pvc-1", target); err != nil || s.BytesAvailable > 32*mebibyte {
		t.Errorf("stats %+v, %v", s, err)
	}
	_, err = n.Stats(t.Context(), "pvc-1", second)
	wants(t, err, store.ErrNotFound, "not published at volume_path")
	if v, _, err := n.Get(t.Context(), "pvc-1"); err != nil || v.Pool != "nvme1" {
		t.Errorf("get: %+v, %v", v, err)
	}
	for i, said := range []*volume.Said{saying("pvc-1", "nvme1"), nil} { // the kubelet says nothing
		bytes := int64(i+2) * mebibyte
		if v, err := n.Manager.Expand(t.Context(), "pvc-1", bytes, 0, said); err != nil || v.Pool != "nvme1" {
			t.Errorf("expand: %+v, %v", v, err)
		}
	}
	sizes := map[string]int64{}
	must(t, n.Each(t.Context(), func(v nodeapi.VolumeStatus) error {
		sizes[v.Pool] = v.Bytes
		return nil
	}))
	if sizes["nvme0"] != mebibyte || sizes["nvme1"] != 3*mebibyte {
		t.Errorf("listed are %v", sizes)
	}
	must(t, n.Unpublish(t.Context(), "pvc-1", target))
}

// TestOnlyDataIsNotDiscarded: what somebody has moved to another pool than the PersistentVolume names is no copy.
func TestOnlyDataIsNotDiscarded(t *testing.T) {
	d := twoDisks()
	c := &cluster{}
	n := start(t, d, withTwoDisks(), withCluster(c))
	n.look(t)
	n.lands(t, "pvc-1", "nvme0")
	c.pvs = naming("pvc-1").pvs
	c.pvs[0].Pool = "nvme1"
	wants(t, n.Discard(t.Context(), "pvc-1", "", 0), nodeapi.ErrNamed, "pool nvme1, which", "its only data")
	if got := n.where(t, "pvc-1"); !slices.Equal(got, []string{"nvme0"}) {
		t.Errorf("it is in %q", got)
	}
}

// withPlainVolume has pvc-1 in nvme0, of a class that names this pool alone.
func withPlainVolume(t *testing.T) *node {
	t.Helper()
	n := start(t, twoDisks(), withTwoDisks())
	s := spec("pvc-1")
	s.Pool = "nvme0"
	_, err := n.Create(t.Context(), s)
	must(t, err)
	n.look(t)
	return n
}

// TestOneIDInTwoPools: the PersistentVolume says which of them is meant, also of a class that names one pool.
func TestOneIDInTwoPools(t *testing.T) {
	n := withPlainVolume(t)
	to := n.openAt(t, "/nvme1")
	must(t, to.Mkdir("pvc-1", 0o777))
	info, err := to.Stat("pvc-1")
	must(t, err, to.Close())
	c := naming("pvc-1")
	c.pvs[0].Pool = "nvme1"
	n = start(t, n.disk, withTwoDisks(), withCluster(c))
	n.look(t)
	must(t, n.Publish(t.Context(), inPool("pvc-1", "nvme1")))
	if m, _ := n.mounts.Inspect(target); m.Ino != info.Ino || m.Dev != info.Dev {
		t.Errorf("mounted is %+v, want %+v", m, info)
	}
	must(t, n.Unpublish(t.Context(), "pvc-1", target), n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "nvme1")))
	if got := n.where(t, "pvc-1"); !slices.Equal(got, []string{"nvme0"}) {
		t.Errorf("it is in %q", got)
	}
}

// TestDeleteOfCopies goes on where an earlier one ended.
func TestDeleteOfCopies(t *testing.T) {
	d := twoDisks()
	n := start(t, d, withTwoDisks())
	n.lands(t, "pvc-1", "nvme0")
	d.ReplaceByEmpty("/nvme0")
	n.lands(t, "pvc-1", "nvme1")
	d.PutBack("/nvme0")
	n.look(t)
	d.SetReadOnly("/nvme0", true)
	said := saying("pvc-1", "nvme1")
	if err := n.Manager.Delete(t.Context(), "pvc-1", said); !errors.Is(err, syscall.EROFS) {
		t.Errorf("delete where a copy cannot be: %v", err)
	}
	d.SetReadOnly("/nvme0", false)
	must(t, n.Manager.Delete(t.Context(), "pvc-1", said), n.Manager.Delete(t.Context(), "pvc-1", said))
	if got := n.where(t, "pvc-1"); len(got) > 0 {
		t.Errorf("it is in %q", got)
	}
}

// TestCopiesOfAPlainClass are somebody's who made them by hand: only the volume is deleted.
func TestCopiesOfAPlainClass(t *testing.T) {
	n := withPlainVolume(t)
	from, to := n.openAt(t, "/nvme0"), n.openAt(t, "/nvme1")
	record, err := from.ReadFile(disk.VolumesDir + "/pvc-1.json")
	must(t, err, to.WriteFile(disk.VolumesDir+"/pvc-1.json", record, 0o600), to.Mkdir("pvc-1", 0o777),
		from.Close(), to.Close())
	n.Cluster = unasked{}
	must(t, n.Manager.Delete(t.Context(), "pvc-1", saying("pvc-1", "nvme0")))
	if got := n.where(t, "pvc-1"); !slices.Equal(got, []string{"nvme1"}) {
		t.Errorf("it is in %q", got)
	}
}

// TestCreateThatFailsAnywhere leaves one volume at most, in one pool.
func TestCreateThatFailsAnywhere(t *testing.T) {
	for step := 1; ; step++ {
		d := twoDisks()
		n := start(t, d, withTwoDisks())
		n.look(t)
		before := d.Calls()
		d.FailAt(step, syscall.ENOSPC)
		d.FailAt(step+1, syscall.ENOSPC) // what would undo it as well
		_, err := n.Create(t.Context(), among("pvc-1", "nvme0", "nvme1"))
		if d.Calls()-before < step {
			must(t, err)
			return
		}
		if _, again := n.Create(t.Context(), among("pvc-1", "nvme0", "nvme1")); again != nil {
			t.Errorf("step %d: %v, asked again: %v", step, err, again)
		}
		n = start(t, d.Crash(), withTwoDisks())
		n.look(t)
		if got := n.where(t, "pvc-1"); len(got) != 1 || !slices.Equal(n.set.Holders("pvc-1"), got) {
			t.Errorf("step %d: %v: it is in %q and %q", step, err, got, n.set.Holders("pvc-1"))
		}
	}
}
