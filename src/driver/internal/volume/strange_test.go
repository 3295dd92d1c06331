package volume_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const otherPath = "/other"

// neighbours starts a node with two pools on one filesystem and opens them in an order, the other one last unless said otherwise.
func neighbours(t *testing.T, disk *memfs.Disk, order ...string) *node {
	t.Helper()
	n := start(t, disk, withPools(retained("local", poolPath), retained("other", otherPath)))
	if len(order) == 0 {
		order = []string{"local", "other"}
	}
	for _, name := range order {
		p, err := n.set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := p.Open(t.Context())
		if err := errors.Join(err, opened.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// inOther makes a volume in the other pool, and gives its record.
func (n *node) inOther(t *testing.T, id string) volume.Record {
	t.Helper()
	s := spec(id)
	s.Pool = "other"
	v, err := n.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return v.Record
}

// copied puts a volume into the pool local by hand whose record was copied from the other pool.
func (n *node) copied(t *testing.T, from volume.Record, to string, bytes int64) {
	t.Helper()
	from.ID, from.Bytes = to, bytes
	disk := n.open(t)
	quotas, _ := poolfs.QuotasOf(disk)
	err := errors.Join(quotas.MkdirCounted(to, 0o777, 0), disk.Sync("."), store.Files{}.Add(disk, from), disk.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// TestARecordFromAnotherPoolDoesNotTouchItsLimit: whether the driver was there when it was copied or finds it at its start, and whichever
// pool is there first.
func TestARecordFromAnotherPoolDoesNotTouchItsLimit(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		n := neighbours(t, disk)
		mustCreate(t, n, "pvc-2") // both pools have a range
		original := n.inOther(t, "pvc-1")
		n.copied(t, original, "pvc-0", 4<<20)
		wantLimit := func(about string) {
			t.Helper()
			if got := n.limitOf(t, original.ProjectID); got != original.Bytes {
				t.Errorf("%s: the limit of the other pool's volume is %d, want %d", about, got, original.Bytes)
			}
		}
		_, err := n.Expand(t.Context(), "pvc-0", 8<<20, 0)
		wants(t, err, volume.ErrBroken, "pvc-0", "pool local does not give", "copy the data")
		for _, order := range [][]string{nil, {"local", "other"}, {"other", "local"}} {
			if order != nil {
				n = neighbours(t, disk, order...)
				if s := n.set.Status(); s[0].Refused != 1 || s[1].Refused != 0 || !n.events.tell("VolumeRefused", "pvc-0") {
					t.Errorf("%v: %+v, %v", order, s, n.events.told)
				}
			}
			wantLimit("opened")
			wants(t, n.served(t, "pvc-0"), volume.ErrBroken, "pvc-0", "copied from another pool")
			if v, health, err := n.Get(t.Context(), "pvc-0"); err != nil || v.Enforcement != volume.None || health.Reason != "NumberShared" {
				t.Errorf("%v: %+v, %+v, %v", order, v, health, err)
			}
			for _, id := range []string{"pvc-1", "pvc-2"} {
				if err := n.served(t, id); err != nil {
					t.Errorf("%v: %s: %v", order, id, err)
				}
			}
			wantLimit("served")
		}
		if err := n.Delete(t.Context(), "pvc-0"); err != nil {
			t.Fatal(err)
		}
		for _, restart := range []bool{false, true} { // the second time with what the first has left
			if restart {
				n = neighbours(t, disk)
				n.copied(t, original, "pvc-3", 4<<20)
				if err := n.Delete(t.Context(), "pvc-3"); err != nil {
					t.Fatal(err)
				}
				n = neighbours(t, disk) // it is only in the trash by then
			}
			n.purge(t)
			wantLimit("purged")
		}
	})
}

// TestAVolumeMovedToAnotherPoolKeepsItsLimit: its number is of the range of the pool that it has left, which must not take it for what nobody has.
func TestAVolumeMovedToAnotherPoolKeepsItsLimit(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		n := neighbours(t, disk)
		mustCreate(t, n, "pvc-2") // both pools have a range
		moved := n.inOther(t, "pvc-1")
		other, err := n.set.Get("other")
		if err != nil {
			t.Fatal(err)
		}
		from, err := other.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		to := n.open(t)
		quotas, _ := poolfs.QuotasOf(to)
		err = errors.Join(quotas.MkdirCounted(moved.ID, 0o777, moved.ProjectID), to.Sync("."), store.Files{}.Add(to, moved), to.Close(),
			from.RemoveTree(t.Context(), moved.ID, nil), store.Files{}.Remove(from, moved.ID), from.Sync("."), from.Close())
		if err != nil {
			t.Fatal(err)
		}
		for _, order := range [][]string{{"local", "other"}, {"other", "local"}} {
			n = neighbours(t, disk, order...)
			if got := n.limitOf(t, moved.ProjectID); got != moved.Bytes {
				t.Errorf("%v: its limit is %d, want %d", order, got, moved.Bytes)
			}
			if err := n.served(t, moved.ID); err != nil {
				t.Errorf("%v: %v", order, err)
			}
		}
	})
}

// TestALimitGoesOnceNothingCountsToIt: at the driver's start the filesystem may still be removing what an interrupted create had made.
func TestALimitGoesOnceNothingCountsToIt(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		n := neighbours(t, disk)
		mustCreate(t, n, "pvc-2")
		number := n.numbered(t, "pvc-1")
		elsewhere, err := n.set.Get("other")
		if err != nil {
			t.Fatal(err)
		}
		to, err := elsewhere.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		from := n.open(t)
		quotas, _ := poolfs.QuotasOf(to)
		if err := errors.Join(quotas.MkdirCounted("rest", 0o700, number), to.Sync("."), from.RemoveTree(t.Context(), "pvc-1", nil),
			store.Files{}.Remove(from, "pvc-1"), from.Sync("."), from.Close()); err != nil {
			t.Fatal(err)
		}
		n = neighbours(t, disk)
		look := func() {
			n.clock.advance(time.Minute)
			n.pool(t).Check(t.Context())
		}
		look()
		if n.limitOf(t, number) == 0 {
			t.Error("the limit is gone, and something counts to it")
		}
		if err := errors.Join(to.RemoveTree(t.Context(), "rest", nil), to.Close()); err != nil {
			t.Fatal(err)
		}
		look()
		if got := n.limitOf(t, number); got != 0 {
			t.Errorf("nothing counts to it, and the limit is %d", got)
		}
	})
}

// TestARecordFromAnotherPoolWhileCountedAnew: what the kernel says is used is no proof then.
func TestARecordFromAnotherPoolWhileCountedAnew(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaFull)
	n := neighbours(t, disk)
	mustCreate(t, n, "pvc-2")
	original := n.inOther(t, "pvc-1")
	n.copied(t, original, "pvc-0", 4<<20)
	disk.LoseCount(poolPath)
	d := n.open(t)
	quotas, _ := poolfs.QuotasOf(d)
	if err := errors.Join(quotas.Recount(), d.Close()); err != nil {
		t.Fatal(err)
	}
	wants(t, n.served(t, "pvc-0"), volume.ErrBroken, "copied from another pool")
	if got := n.limitOf(t, original.ProjectID); got != original.Bytes {
		t.Errorf("the original's limit is %d, want %d", got, original.Bytes)
	}
}

// copiedOnDisk makes a volume of 64 MiB in a pool of its own on a real filesystem, and copies it, record and all, into another pool: that one refuses
// the copy, deletes it, and leaves the original its limit. It gives the original's directory.
func copiedOnDisk(t *testing.T, root string, copyTo func(from, to string)) (original string) {
	t.Helper()
	other := host{state: filepath.Join(root, "state2"), path: filepath.Join(root, "other"), log: slog.New(slog.DiscardHandler), now: time.Now}
	v := create64Mi(t, other.start(t, required).Locked, "pvc-1")
	m, set := onDisk(t, root, required)
	checked(t, set)
	original = filepath.Join(other.path, "csi", v.ID)
	copyTo(original, filepath.Join(root, "pool", "csi", "pvc-0"))
	disk, err := poolfs.NewHost("/").Open(filepath.Join(root, "pool"))
	if err != nil {
		t.Fatal(err)
	}
	copied := v.Record
	copied.ID, copied.Bytes = "pvc-0", 512<<20
	if err := errors.Join(store.Files{}.Add(disk, copied), disk.Close()); err != nil {
		t.Fatal(err)
	}
	wants(t, m.Publish(t.Context(), volume.PublishRequest{ID: "pvc-0", Target: target}), volume.ErrBroken, "copied from another pool")
	m, set = onDisk(t, root, required)
	if s := checked(t, set); s.Refused != 1 {
		t.Errorf("%+v", s)
	}
	if err := m.Delete(t.Context(), "pvc-0"); err != nil {
		t.Fatal(err)
	}
	purgeAll(t, set, root, "pvc-0")
	if got := accounts(t, root)[v.ProjectID]; got.Limit.Bytes != 64<<20 {
		t.Errorf("%+v", got)
	}
	return original
}

// TestNumbersOfAnOlderRangeStay: a pool whose marker lost its range, or names another pool's, gets a new one, and its volumes keep theirs.
func TestNumbersOfAnOlderRangeStay(t *testing.T) {
	for name, first := range map[string]func(other uint32) uint32{
		"lost":      func(uint32) uint32 { return 0 },
		"another's": func(other uint32) uint32 { return other },
	} {
		t.Run(name, func(t *testing.T) {
			onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
				disk := fresh()
				n := neighbours(t, disk)
				number := n.numbered(t, "pvc-1")
				putBack := n.numbered(t, "pvc-2")
				other := n.inOther(t, "pvc-9").ProjectID
				n.setRange(t, first(other>>20<<20))
				csi := n.open(t)
				quotas, _ := poolfs.QuotasOf(csi)
				err := errors.Join(csi.RemoveTree(t.Context(), "pvc-2", nil), quotas.MkdirCounted("pvc-2", 0o777, 0), csi.Sync("."), csi.Close())
				if err != nil {
					t.Fatal(err)
				}
				n = neighbours(t, disk, "other", "local")
				if later := n.numbered(t, "pvc-3"); later>>20 == number>>20 || later>>20 == other>>20 {
					t.Fatalf("the range is the old one: %d, %d", number, later)
				}
				if s := n.set.Status()[0]; s.Refused != 0 {
					t.Errorf("%+v, %v", s, n.events.told)
				}
				for id, number := range map[string]uint32{"pvc-1": number, "pvc-2": putBack} {
					if err := n.served(t, id); err != nil || n.enforced(t, id) == volume.None {
						t.Errorf("%s: %v, enforcement %s", id, err, n.enforced(t, id))
					}
					if _, err := n.Expand(t.Context(), id, 2<<20, 0); err != nil || n.limitOf(t, number) != 2<<20 {
						t.Errorf("%s: limit %d, %v", id, n.limitOf(t, number), err)
					}
				}
				if err := n.Delete(t.Context(), "pvc-1"); err != nil {
					t.Fatal(err)
				}
				n.purge(t)
				if got := n.limitOf(t, number); got != 0 {
					t.Errorf("the limit of a volume that is gone is %d", got)
				}
			})
		})
	}
}

// setRange changes the range that a pool's marker names, as by hand.
func (n *node) setRange(t *testing.T, first uint32) {
	t.Helper()
	disk := n.open(t)
	data, err := disk.ReadFile(poolfs.MarkerFile)
	if err != nil {
		t.Fatal(err)
	}
	var marker map[string]any
	if err := json.Unmarshal(data, &marker); err != nil {
		t.Fatal(err)
	}
	marker["firstNumber"] = first
	if data, err = json.Marshal(marker); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(poolfs.ReplaceFile(disk, poolfs.MarkerFile, data), disk.Close()); err != nil {
		t.Fatal(err)
	}
}
