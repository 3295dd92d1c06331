package volume_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// onEnforcing runs a test on a disk with each kind of quota.
func onEnforcing(t *testing.T, test func(t *testing.T, fresh func() *memfs.Disk)) {
	t.Helper()
	for name, quota := range quotas() {
		if quota != poolfs.QuotaOff {
			t.Run(name, func(t *testing.T) { test(t, func() *memfs.Disk { return quotaDisk(t, quota) }) })
		}
	}
}

// numbered makes a volume and gives its number.
func (n *node) numbered(t *testing.T, id string) uint32 {
	t.Helper()
	mustCreate(t, n, id)
	return n.records(t)[id].ProjectID
}

// twin copies a volume by hand, as with cp or a snapshot: its directory, which counts to the original's number or to none, and its record
// with another id and size.
func (n *node) twin(t *testing.T, from, to string, bytes int64, counted bool) {
	t.Helper()
	r := n.records(t)[from]
	number := r.ProjectID
	r.ID, r.Bytes = to, bytes
	disk := n.open(t)
	quotas, _ := poolfs.QuotasOf(disk)
	if !counted {
		number = 0
	}
	err := errors.Join(quotas.MkdirCounted(to, 0o777, number), disk.Sync("."), store.Files{}.Add(disk, r), disk.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// TestATwinIsPurgedWhileQuotaIsOff: there is no limit then that its heir could be given.
func TestATwinIsPurgedWhileQuotaIsOff(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	n := warm(t, disk)
	n.numbered(t, "pvc-1")
	n.twin(t, "pvc-1", "pvc-2", 1<<20, false)
	n = warm(t, disk)
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Fatal(err)
	}
	disk.SetQuota(poolPath, poolfs.QuotaOff)
	n.pool(t).Check(t.Context())
	n.clock.advance(2 * time.Hour)
	n.pool(t).Purge(t.Context())
	if left := n.set.Status()[0].TrashEntries; left != 0 {
		t.Errorf("%d entries are left in the trash", left)
	}
}

// limitOf is the limit of a volume's number on the disk.
func (n *node) limitOf(t *testing.T, number uint32) int64 {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	quotas, _ := poolfs.QuotasOf(disk)
	a, err := quotas.Account(number)
	if err != nil {
		t.Fatal(err)
	}
	return a.Limit.Bytes
}

// purge empties the trash.
func (n *node) purge(t *testing.T) {
	t.Helper()
	n.clock.advance(2 * time.Hour)
	p := n.pool(t)
	for p.Purge(t.Context()) {
	}
	if left := slices.DeleteFunc(n.ls(t, poolfs.TrashDir), func(s string) bool { return s == ".spare" }); len(left) > 0 {
		t.Fatalf("the trash holds %v", left)
	}
}

// served publishes a volume, asks for its numbers and ends that.
func (n *node) served(t *testing.T, id string) error {
	t.Helper()
	at := target + id
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: id, Target: at}); err != nil {
		return err
	}
	if _, _, err := n.Stats(t.Context(), id, at); err != nil {
		t.Errorf("stats of %s: %v", id, err)
	}
	return n.Unpublish(t.Context(), id, at)
}

// TestATwinDoesNotTouchTheOriginalsLimit: whether the driver was there when the copy was made, or finds it at its start.
func TestATwinDoesNotTouchTheOriginalsLimit(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		n := warm(t, disk)
		number := n.numbered(t, "pvc-1")
		n.twin(t, "pvc-1", "pvc-0", 1<<19, false) // its name comes first, its directory counts nowhere
		n.twin(t, "pvc-1", "pvc-2", 2<<20, true)
		wantLimit := func(about string, want int64) {
			t.Helper()
			if got := n.limitOf(t, number); got != want {
				t.Errorf("%s: the limit is %d, want %d", about, got, want)
			}
		}
		for _, about := range []string{"copied meanwhile", "found at start"} {
			for _, twin := range []string{"pvc-0", "pvc-2"} {
				wants(t, n.served(t, twin), volume.ErrBroken, "pvc-1", twin, "copy the data")
				_, err := n.Expand(t.Context(), twin, 4<<20, 0)
				wants(t, err, volume.ErrBroken, "pvc-1", twin)
				v, health, err := n.Get(t.Context(), twin)
				if err != nil || v.Enforcement != volume.None || health.Condition != volume.Degraded || health.Reason != "NumberShared" {
					t.Errorf("%s: %+v, %+v, %v", about, v, health, err)
				}
			}
			wantLimit(about, 1<<20)
			if err := n.served(t, "pvc-1"); err != nil {
				t.Errorf("%s: the original: %v", about, err)
			}
			if _, health, err := n.Get(t.Context(), "pvc-1"); err != nil || health.Condition != volume.Healthy {
				t.Errorf("%s: the original: %+v, %v", about, health, err)
			}
			n = warm(t, disk)
			if s := n.set.Status()[0]; s.Refused != 2 || s.Volumes != 3 || !n.events.tell("VolumeRefused", "pvc-0, pvc-2") {
				t.Errorf("%s: %+v, %v", about, s, n.events.told)
			}
			wantLimit("after a restart", 1<<20)
		}
		if _, err := n.Expand(t.Context(), "pvc-1", 3<<20, 0); err != nil {
			t.Errorf("expand the original: %v", err)
		}
		wantLimit("expanded", 3<<20)
		for _, twin := range []string{"pvc-0", "pvc-2"} {
			if err := n.Delete(t.Context(), twin); err != nil {
				t.Fatal(err)
			}
		}
		n.purge(t)
		wantLimit("the twins are gone", 3<<20)
		if other := n.numbered(t, "pvc-3"); other == number {
			t.Error("the number was given to another volume")
		}
		n.consistent(t, "the twins are gone")
		warm(t, disk).consistent(t, "restarted")
	})
}

// TestTheTwinKeepsTheLimitOfADeletedOriginal, and what both leave in the trash keeps the number from others.
func TestTheTwinKeepsTheLimitOfADeletedOriginal(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
				disk := fresh()
				n := warm(t, disk)
				number := n.numbered(t, "pvc-1")
				n.twin(t, "pvc-1", "pvc-2", 2<<20, false)
				n = warm(t, disk)
				again := func() {
					if restart {
						n = warm(t, disk)
					}
				}
				if err := n.Delete(t.Context(), "pvc-1"); err != nil {
					t.Fatal(err)
				}
				again()
				n.purge(t)
				if got := n.limitOf(t, number); got == 0 {
					t.Error("the limit went with the original")
				}
				if err := n.served(t, "pvc-2"); err != nil {
					t.Errorf("the number is the twin's now: %v", err)
				}
				if _, err := n.Expand(t.Context(), "pvc-2", 3<<20, 0); err != nil {
					t.Errorf("expand: %v", err)
				}
				again()
				n.limited(t, n.records(t), "the original is gone")
				n.twin(t, "pvc-2", "pvc-4", 1<<20, true)
				again()
				for _, id := range []string{"pvc-2", "pvc-4"} {
					if err := n.Delete(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				again()
				if other := n.numbered(t, "pvc-3"); other == number {
					t.Error("the number of what is in the trash was given to another volume")
				}
				n.purge(t)
				n.consistent(t, "both are gone")
			})
		})
	}
}

// TestATwinWithoutItsOriginal: the record of the original is there, its data is not.
func TestATwinWithoutItsOriginal(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		n := warm(t, disk)
		number := n.numbered(t, "pvc-1")
		n.twin(t, "pvc-1", "pvc-2", 2<<20, false)
		pool := n.open(t)
		if err := errors.Join(pool.RemoveTree(t.Context(), "pvc-1", nil), pool.Sync("."), pool.Close()); err != nil {
			t.Fatal(err)
		}
		n = warm(t, disk)
		if s := n.set.Status()[0]; s.Lost != 1 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
		if err := n.served(t, "pvc-2"); err != nil {
			t.Error(err)
		}
		if err := n.Delete(t.Context(), "pvc-1"); err != nil {
			t.Fatal(err)
		}
		if got := n.limitOf(t, number); got != 2<<20 {
			t.Errorf("the limit is %d", got)
		}
		n.consistent(t, "retired")
	})
}

// TestALostVolumesLimitGoesWithItsRecord, unless its data lies in the trash.
func TestALostVolumesLimitGoesWithItsRecord(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		n := warm(t, fresh())
		number := n.numbered(t, "pvc-1")
		pool := n.open(t)
		if err := errors.Join(pool.RemoveTree(t.Context(), "pvc-1", nil), pool.Sync("."), pool.Close()); err != nil {
			t.Fatal(err)
		}
		if err := n.Delete(t.Context(), "pvc-1"); err != nil {
			t.Fatal(err)
		}
		n.consistent(t, "lost")
		if got := n.limitOf(t, number); got != 0 {
			t.Errorf("the limit is %d", got)
		}

		number = n.numbered(t, "pvc-2")
		r := n.records(t)["pvc-2"]
		if err := n.Delete(t.Context(), "pvc-2"); err != nil {
			t.Fatal(err)
		}
		pool = n.open(t)
		if err := errors.Join(store.Files{}.Add(pool, r), pool.Close()); err != nil { // its record alone was put back
			t.Fatal(err)
		}
		if err := n.Delete(t.Context(), "pvc-2"); err != nil {
			t.Fatal(err)
		}
		if got := n.limitOf(t, number); got != 1<<20 {
			t.Errorf("what is in the trash has limit %d", got)
		}
		if other := n.numbered(t, "pvc-3"); other == number {
			t.Error("its number was given to another volume")
		}
		n.purge(t)
		n.consistent(t, "purged")
	})
}

// TestTwinsAfterACrash crashes the delete of a twin, its purge and the next start at every step: the original keeps limit and number.
func TestTwinsAfterACrash(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		for _, gone := range []string{"pvc-1", "pvc-2"} {
			stays := map[string]string{"pvc-1": "pvc-2", "pvc-2": "pvc-1"}[gone]
			for step := 1; ; step++ {
				disk := fresh()
				n := warm(t, disk)
				mustCreate(t, n, "pvc-1")
				n.twin(t, "pvc-1", "pvc-2", 2<<20, false)
				n = warm(t, disk)
				disk.CrashAt(step)
				if err := n.Delete(t.Context(), gone); err == nil {
					n.clock.advance(2 * time.Hour)
					n.pool(t).Purge(t.Context())
				}
				for _, a := range aftermaths() {
					about := fmt.Sprintf("%s goes, crash at step %d (%s), %s", gone, step, last(disk.Trace()), a.name)
					after := warm(t, a.of(disk))
					owner := after.records(t)[stays]
					if s := after.set.Status()[0]; s.Refused > 0 && len(after.records(t)) == 1 {
						t.Errorf("%s: %+v", about, s)
					}
					if _, both := after.records(t)[gone]; both && stays == "pvc-2" {
						owner = after.records(t)["pvc-1"]
					}
					if got := after.limitOf(t, owner.ProjectID); got != owner.Bytes {
						t.Errorf("%s: the limit is %d, %s has %d", about, got, owner.ID, owner.Bytes)
					}
					if other := after.numbered(t, "pvc-3"); other == owner.ProjectID {
						t.Errorf("%s: its number was given to another volume", about)
					}
				}
				if !disk.Crashed() {
					break
				}
			}
		}
	})
}
