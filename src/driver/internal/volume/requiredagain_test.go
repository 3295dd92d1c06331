package volume_test

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// withNoneBetween is a pool that was configured with quota required, and then with none; pvc-1 is of the first time, pvc-2 of the second.
func withNoneBetween(t *testing.T, disk *memfs.Disk) {
	t.Helper()
	mustCreate(t, start(t, disk, withQuota(poolspec.QuotaRequired)), "pvc-1")
	n := start(t, disk, withQuota(poolspec.QuotaNone))
	mustCreate(t, n, "pvc-2")
	if r := n.records(t); r["pvc-1"].ProjectID == 0 || r["pvc-2"].ProjectID != 0 || r["pvc-2"].Backend != "plain" {
		t.Fatalf("records %+v", r)
	}
}

// enforced tells how far a volume is held to its size.
func (n *node) enforced(t *testing.T, id string) volume.Enforcement {
	t.Helper()
	v, _, err := n.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v.Enforcement
}

// TestQuotaRequiredAgainIsNotSwitchedOnOverOldData: what btrfs's volumes hold by then would count to nobody.
func TestQuotaRequiredAgainIsNotSwitchedOnOverOldData(t *testing.T) {
	disk := newDisk(t)
	disk.AddDir(poolPath)
	disk.SetFSType(poolPath, "btrfs")
	withNoneBetween(t, disk)
	disk.SetQuota(poolPath, poolfs.QuotaOff)
	n := start(t, disk, withQuota(poolspec.QuotaRequired))
	_, err := n.Create(t.Context(), spec("pvc-3"))
	wants(t, err, volume.ErrPoolNotHere, "quota is required", "count to nobody", "btrfs quota enable")
	s := n.set.Status()[0]
	if s.Reason != pool.NoNewVolumes || !strings.Contains(s.Message, "count to nobody") || strings.Contains(s.Message, "--simple") {
		t.Errorf("the pool says %s: %s", s.Reason, s.Message)
	}
	if !s.Present || !s.EnforcementLost || n.events.tell("QuotaEnabled", "") || !n.events.tell("EnforcementLost", "count to nobody") {
		t.Errorf("%+v, %v", s, n.events.told)
	}
	for _, id := range []string{"pvc-1", "pvc-2"} {
		if err := n.served(t, id); err != nil || n.enforced(t, id) != volume.None {
			t.Errorf("%s: %v", id, err)
		}
	}
	disk.SetQuota(poolPath, poolfs.QuotaFull) // as it says
	if s := n.check(t); s.EnforcementLost || s.Enforcement != "cooperative" || s.Refused > 0 || !n.events.tell("EnforcementRestored", "local") {
		t.Errorf("switched on: %+v, %v", s, n.events.told)
	}
	r := n.records(t)
	delete(r, "pvc-2")
	n.limited(t, r, "switched on")
	mustCreate(t, n, "pvc-3")
}

// TestQuotaRequiredAgainWithoutProjectQuota: XFS or ext4 was mounted without it meanwhile. The pool is there as before, with its volumes.
func TestQuotaRequiredAgainWithoutProjectQuota(t *testing.T) {
	for _, kind := range []string{"xfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			disk := quotaDisk(t, poolfs.QuotaProject)
			withNoneBetween(t, disk)
			disk.SetQuota(poolPath, poolfs.QuotaOff)
			disk.SetFSType(poolPath, kind)
			n := start(t, disk, withQuota(poolspec.QuotaRequired))
			_, err := n.Create(t.Context(), spec("pvc-3"))
			wants(t, err, volume.ErrPoolNotHere, "quota is required", kind+" has no quota on")
			if s := n.set.Status()[0]; !s.Present || !s.EnforcementLost || s.Volumes != 2 || s.Refused > 0 || n.events.tell("EnforcementLost", "btrfs") {
				t.Errorf("%+v, %v", s, n.events.told)
			}
			for _, id := range []string{"pvc-1", "pvc-2"} {
				if err := n.served(t, id); err != nil || n.enforced(t, id) != volume.None {
					t.Errorf("%s: %v", id, err)
				}
			}
			_, err = n.Expand(t.Context(), "pvc-1", 2<<20, 0)
			wants(t, err, volume.ErrNotEnforced, "switch it on again")
			disk.SetQuota(poolPath, poolfs.QuotaProject)
			if s := n.check(t); s.EnforcementLost || s.Enforcement != "cooperative" || s.Refused > 0 || !n.events.tell("EnforcementRestored", "local") {
				t.Errorf("mounted with it: %+v, %v", s, n.events.told)
			}
			r := n.records(t)
			delete(r, "pvc-2")
			n.limited(t, r, "mounted with it")
			mustCreate(t, n, "pvc-3")
		})
	}
}

// changed tells whether the set has said, since the last call, that Glance has something new to tell.
func (n *node) changed() bool {
	select {
	case <-n.set.Changed():
		return true
	default:
		return false
	}
}

// TestLostQuotaSaysWhatToDo, in the status, in the event and to whom the pod's conditions are for. On btrfs it is not what one does where
// volumes hold nothing yet.
func TestLostQuotaSaysWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		on       poolfs.Quota
		fs, says string
	}{
		"btrfs": {poolfs.QuotaSimple, "btrfs", "`btrfs quota enable` (full qgroups) counts it"},
		"xfs":   {poolfs.QuotaProject, "xfs", "xfs has no quota on"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := quotaDisk(t, test.on)
			n := start(t, disk, withQuota(poolspec.QuotaAuto))
			mustCreate(t, n, "pvc-1")
			n.changed()
			disk.SetQuota(poolPath, poolfs.QuotaOff)
			disk.SetFSType(poolPath, test.fs)
			s := n.check(t)
			if s.Reason != pool.EnforcementLost || !strings.Contains(s.Message, test.says) || !n.events.tell("EnforcementLost", test.says) {
				t.Errorf("%s: %s; %v", s.Reason, s.Message, n.events.told)
			}
			if !n.changed() {
				t.Error("nobody is told that the pool says something else")
			}
		})
	}
}

// TestVolumesMadeWithoutQuotaStayWithout: required, none and required again on a filesystem whose quota was on all the time. What was made
// meanwhile counts to nobody, and grows by its record only.
func TestVolumesMadeWithoutQuotaStayWithout(t *testing.T) {
	onEnforcing(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		withNoneBetween(t, disk)
		n := start(t, disk, withQuota(poolspec.QuotaRequired))
		mustCreate(t, n, "pvc-3")
		for _, id := range []string{"pvc-1", "pvc-2", "pvc-3"} {
			if err := n.served(t, id); err != nil || (n.enforced(t, id) == volume.None) != (id == "pvc-2") {
				t.Errorf("%s: %v, enforcement %s", id, err, n.enforced(t, id))
			}
			if v, err := n.Expand(t.Context(), id, 2<<20, 0); err != nil || v.Bytes != 2<<20 {
				t.Errorf("expand %s: %+v, %v", id, v, err)
			}
		}
		r := n.records(t)
		if r["pvc-2"].ProjectID != 0 || r["pvc-2"].Backend != "plain" {
			t.Errorf("%+v", r["pvc-2"])
		}
		delete(r, "pvc-2")
		n.limited(t, r, "again")
		if err := n.Delete(t.Context(), "pvc-2"); err != nil {
			t.Fatal(err)
		}
		n.purge(t)
		n.consistent(t, "without it")
	})
}

// TestQuotaRequiredAgainOnAnEmptyPool switches it on: nobody's data is there.
func TestQuotaRequiredAgainOnAnEmptyPool(t *testing.T) {
	disk := newDisk(t)
	disk.AddDir(poolPath)
	disk.SetFSType(poolPath, "btrfs")
	withNoneBetween(t, disk)
	n := start(t, disk, withQuota(poolspec.QuotaNone))
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Fatal(err)
	}
	disk.SetQuota(poolPath, poolfs.QuotaOff)
	n = start(t, disk, withQuota(poolspec.QuotaRequired))
	mustCreate(t, n, "pvc-3")
	if !n.events.tell("QuotaEnabled", "btrfs") || n.enforced(t, "pvc-3") != volume.Strict || n.enforced(t, "pvc-2") != volume.None {
		t.Errorf("%v", n.events.told)
	}
}
