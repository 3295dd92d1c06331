package volume_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestWithoutTheRightToSetLimits: the kernel shows that quota is on, and lets a driver in a user namespace set nothing.
func TestWithoutTheRightToSetLimits(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	disk.SetUnprivileged(poolPath, true)
	n := start(t, disk, withQuota(poolspec.QuotaRequired))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolAbsent, "quota is required", "may not set limits", "privileged")
	if s := n.set.Status()[0]; s.Reason != "QuotaUnavailable" {
		t.Errorf("the pool is absent for %s", s.Reason)
	}

	n = start(t, disk, withQuota(poolspec.QuotaAuto))
	v, err := n.Create(t.Context(), spec("pvc-1"))
	if err != nil || v.Enforcement != volume.None || v.Backend != "plain" {
		t.Errorf("auto: %+v, %v; want a plain volume", v, err)
	}
	calls := disk.Calls()
	if s := n.check(t); !s.Present || s.EnforcementLost || s.Enforcement != "none" {
		t.Errorf("a second look: %+v", s)
	}
	if disk.Calls() != calls {
		t.Errorf("a second look tries again: %v", disk.Trace()[calls:])
	}

	disk.SetUnprivileged(poolPath, false)
	n = start(t, disk, withQuota(poolspec.QuotaAuto))
	if v, err := n.Create(t.Context(), spec("pvc-2")); err != nil || v.Enforcement != volume.Cooperative {
		t.Errorf("started with the right: %+v, %v", v, err)
	}
	disk.SetUnprivileged(poolPath, true)
	n = start(t, disk, withQuota(poolspec.QuotaAuto))
	if err := openPool(t.Context(), n); err != nil || !n.events.tell("EnforcementLost", "may not set limits") {
		t.Errorf("lost: %v, events %v", err, n.events.told)
	}
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-2", Target: target}); err != nil {
		t.Errorf("publish: %v", err)
	}
}

// TestPoolInAnAdminsProject: csi/ is made in a directory that hands an admin's project on.
func TestPoolInAnAdminsProject(t *testing.T) {
	for name, test := range map[string]struct {
		want    poolspec.Quota
		limit   poolfs.Limit
		backend string
		told    bool
	}{
		"auto, no limit":         {want: poolspec.QuotaAuto, backend: "project"},
		"auto, with a limit":     {want: poolspec.QuotaAuto, limit: poolfs.Limit{Bytes: 1 << 30}, backend: "plain"},
		"required, with a limit": {want: poolspec.QuotaRequired, limit: poolfs.Limit{Bytes: 1 << 30}, backend: "project", told: true},
	} {
		t.Run(name, func(t *testing.T) {
			disk := quotaDisk(t, poolfs.QuotaProject)
			disk.AddDir(poolPath)
			join(t, disk, poolPath, test.limit)
			n := start(t, disk, withQuota(test.want))
			v, err := n.Create(t.Context(), spec("pvc-1"))
			if err != nil || v.Backend != test.backend {
				t.Fatalf("%+v, %v; want %s", v, err, test.backend)
			}
			if n.events.tell("ProjectLeft", "project 42") != test.told {
				t.Errorf("events %v", n.events.told)
			}
			if s := n.check(t); !s.Present || s.EnforcementLost {
				t.Errorf("a second look: %+v", s)
			}
			if err := errors.Join(n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}), n.Unpublish(t.Context(), "pvc-1", target), n.Delete(t.Context(), "pvc-1")); err != nil {
				t.Errorf("the volume's life: %v", err)
			}
		})
	}
}

// TestProjectSetOnAPoolInUse: volumes are served and made on, and it heals where the admin undoes it.
func TestProjectSetOnAPoolInUse(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	n := start(t, disk, withQuota(poolspec.QuotaAuto))
	mustCreate(t, n, "pvc-1")
	join(t, disk, poolPath+"/csi", poolfs.Limit{Bytes: 1 << 30})
	if s := n.check(t); !s.Present || !s.EnforcementLost || !n.events.tell("EnforcementLost", "project 42") {
		t.Fatalf("%+v, events %v", s, n.events.told)
	}
	mustCreate(t, n, "pvc-2")
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Error(err)
	}
	join(t, disk, poolPath+"/csi", poolfs.Limit{})
	if s := n.check(t); !s.Present || s.EnforcementLost || s.Enforcement != "cooperative" {
		t.Errorf("the limit is gone: %+v", s)
	}
	if v, err := n.Create(t.Context(), spec("pvc-3")); err != nil || v.Enforcement != volume.Cooperative {
		t.Errorf("%+v, %v", v, err)
	}
	if told := strings.Join(n.events.told, "; "); strings.Contains(told, "ProjectLeft") {
		t.Errorf("a project without a limit was left with an event: %s", told)
	}
}

// join makes a directory part of project 42, and limits that.
func join(t *testing.T, disk *memfs.Disk, path string, limit poolfs.Limit) {
	t.Helper()
	dir, err := disk.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	quotas, _ := poolfs.QuotasOf(dir)
	if err := errors.Join(quotas.Count(".", 42), quotas.SetLimit(42, limit), dir.Sync("."), dir.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestTwoProjectsInOnePool: the limit of each is lifted with an event.
func TestTwoProjectsInOnePool(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	n := start(t, disk, withQuota(poolspec.QuotaRequired))
	mustCreate(t, n, "pvc-1")
	join(t, disk, poolPath+"/csi", poolfs.Limit{Bytes: 1 << 30})
	pool := n.open(t)
	quotas, _ := poolfs.QuotasOf(pool)
	if err := errors.Join(quotas.Count(poolfs.StagingDir, 43), quotas.SetLimit(43, poolfs.Limit{Inodes: 1000}), pool.Close()); err != nil {
		t.Fatal(err)
	}
	n = start(t, disk, withQuota(poolspec.QuotaRequired))
	mustCreate(t, n, "pvc-2")
	for _, word := range []string{"project 42 (limits: 1073741824 bytes", "project 43 (limits: 0 bytes, 1000 inodes"} {
		if !n.events.tell("ProjectLeft", word) {
			t.Errorf("no event tells of %s: %v", word, n.events.told)
		}
	}
}
