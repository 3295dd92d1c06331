package volume_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func TestExpand(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		const mi = 1 << 20
		disk.SetSpace(poolPath, poolfs.Space{Size: 100 * mi, Used: 10 * mi, Free: 90 * mi})
		n := warm(t, disk)
		mustCreate(t, n, "pvc-1")
		for _, step := range []struct {
			about               string
			bytes, limit, wants int64
			err                 error
		}{
			{"larger", 5*mi + 1, 0, 5*mi + volume.Block, nil},
			{"the same again", 5*mi + 1, 0, 5*mi + volume.Block, nil},
			{"smaller: as it is", 3 * mi, 0, 5*mi + volume.Block, nil},
			{"up to the limit", 6 * mi, 6 * mi, 6 * mi, nil},
			{"past the limit", 7*mi - 1, 7*mi - 1, 6 * mi, volume.ErrOutOfRange},
			{"it is past the limit already", 1 * mi, 2 * mi, 6 * mi, volume.ErrOutOfRange},
			{"past all room", 1000 * mi, 0, 6 * mi, volume.ErrNoSpace},
			{"nothing", 0, 0, 6 * mi, volume.ErrInvalid},
			{"no end", 1<<63 - 1, 0, 6 * mi, volume.ErrOutOfRange},
			{"one block", 6*mi + 1, 0, 6*mi + volume.Block, nil},
		} {
			v, err := n.Expand(t.Context(), "pvc-1", step.bytes, step.limit)
			if step.err != nil {
				wants(t, err, step.err)
			} else if err != nil || v.Bytes != step.wants {
				t.Errorf("%s: %d, %v; want %d", step.about, v.Bytes, err, step.wants)
			}
			if r := n.records(t)["pvc-1"]; r.Bytes != step.wants {
				t.Errorf("%s: the record says %d, want %d", step.about, r.Bytes, step.wants)
			}
			n.consistent(t, step.about)
		}
		_, err := n.Expand(t.Context(), "pvc-9", mi, 0)
		wants(t, err, volume.ErrNotFound)
		_, err = n.Expand(t.Context(), "../x", mi, 0)
		wants(t, err, volume.ErrInvalidID)
	})
}

// TestExpandTakesRoomFromOthers where the same bytes are promised once.
func TestExpandTakesRoomFromOthers(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	const mi = 1 << 20
	disk.SetSpace(poolPath, poolfs.Space{Size: 10 * mi, Free: 10 * mi})
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	mustCreate(t, n, "pvc-2")
	if _, err := n.Expand(t.Context(), "pvc-1", 8*mi, 0); err != nil {
		t.Fatal(err)
	}
	_, err := n.Expand(t.Context(), "pvc-2", 3*mi, 0)
	wants(t, err, volume.ErrNoSpace, "room for 1048576 bytes more")
	if v, err := n.Expand(t.Context(), "pvc-2", 2*mi, 0); err != nil || v.Bytes != 2*mi {
		t.Errorf("to what is left: %d, %v", v.Bytes, err)
	}
	n.consistent(t, "all promised")
}

// TestExpandAfterTheQuotaWasOff: a size below what a volume has come to hold meanwhile is refused, one above it is not.
func TestExpandAfterTheQuotaWasOff(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	disk.SetQuota(poolPath, poolfs.QuotaOff)
	pool := n.open(t)
	if err := pool.WriteFile("pvc-1/much", make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = pool.Close()
	disk.SetQuota(poolPath, poolfs.QuotaProject)
	again := warm(t, disk)
	_, err := again.Expand(t.Context(), "pvc-1", 2<<20, 0)
	wants(t, err, volume.ErrBelowUse, "3145728")
	again.consistent(t, "refused")
	if v, err := again.Expand(t.Context(), "pvc-1", 4<<20, 0); err != nil || v.Bytes != 4<<20 {
		t.Errorf("above what it holds: %d, %v", v.Bytes, err)
	}
}

// TestAdoptedVolumesStayUnenforced: only their records grow, and their size, which may be that of the disk, promises nothing.
func TestAdoptedVolumesStayUnenforced(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		const gi = 1 << 30
		disk.AddFile(poolPath+"/csi/pvc-old/precious", []byte("kept"))
		c := knowing("pvc-old")
		c.pvs[0].Bytes = 100 * gi
		n := start(t, disk, withCluster(c))
		v, _, err := n.Get(t.Context(), "pvc-old")
		if err != nil || !v.Adopted || v.ProjectID != 0 || v.Enforcement != volume.None {
			t.Fatalf("%+v, %v", v, err)
		}
		if v, err := n.Expand(t.Context(), "pvc-old", 101*gi, 0); err != nil || v.Bytes != 101*gi {
			t.Errorf("expand: %d, %v", v.Bytes, err)
		}
		mustCreate(t, n, "pvc-1")
		if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-old", Target: target}); err != nil {
			t.Error(err)
		}
		if stats, _, err := n.Stats(t.Context(), "pvc-old", target); err != nil || stats.Own {
			t.Errorf("stats: %+v, %v", stats, err)
		}
		if err := n.Unpublish(t.Context(), "pvc-old", target); err != nil {
			t.Error(err)
		}
		if err := n.Delete(t.Context(), "pvc-old"); err != nil {
			t.Error(err)
		}
		n.consistent(t, "the adopted one deleted")
	})
}
