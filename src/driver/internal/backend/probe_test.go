package backend_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// locked is a disk whose quota the driver may not ask for: in a user namespace, or behind a security module.
type locked struct {
	poolfs.FS
	poolfs.Quotas
}

func (locked) Quota() (poolfs.Quota, string, error) {
	return poolfs.QuotaOff, "", &fs.PathError{Op: "quotactl_fd", Path: "csi", Err: unix.EPERM}
}

func TestWithoutTheRightToAskAPoolIsPlainUnlessQuotaIsRequired(t *testing.T) {
	choice, err := backend.Choose(locked{}, poolspec.QuotaAuto)
	if err != nil || choice.Name() != "plain" || !strings.Contains(choice.Why, "may not ask") {
		t.Errorf("auto: %+v, %v; want plain and why", choice, err)
	}
	if choice, err := backend.Choose(locked{}, poolspec.QuotaRequired); err == nil {
		t.Errorf("required: %+v; want an error", choice)
	}
}

// mute is a disk whose quota the driver may look at and not set.
type mute struct {
	poolfs.FS
	poolfs.Quotas
}

func (mute) SetLimit(uint32, poolfs.Limit) error {
	return &fs.PathError{Op: "set project quota", Path: "csi", Err: unix.EPERM}
}

// projectPool is an open pool on a filesystem with project quota.
func projectPool(t *testing.T) (poolfs.FS, poolfs.Quotas) {
	t.Helper()
	disk := memfs.New()
	disk.AddDir("/pool")
	disk.SetQuota("/pool", poolfs.QuotaProject)
	if err := disk.Create("/pool"); err != nil {
		t.Fatal(err)
	}
	pool, err := disk.Open("/pool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	quotas, _ := poolfs.QuotasOf(pool)
	return pool, quotas
}

func TestTry(t *testing.T) {
	pool, quotas := projectPool(t)
	found, err := backend.Choose(pool, poolspec.QuotaAuto)
	if err != nil {
		t.Fatal(err)
	}
	if got := backend.Try(pool, found); got != found {
		t.Errorf("with the right to set limits: %+v, want %+v", got, found)
	}
	all, err := quotas.Accounts(1, 1<<32-1)
	for _, a := range all {
		if a.Limit != (poolfs.Limit{}) {
			t.Errorf("the try has left %+v, %v", a, err)
		}
	}
	if got := backend.Try(mute{pool, quotas}, found); got.Name() != backend.NamePlain || !strings.Contains(got.Why, "may not set limits") || !strings.Contains(got.Why, "privileged") {
		t.Errorf("without: %+v, want plain, why and what to do", got)
	}
	off := backend.Choice{Backend: backend.Plain{}, Why: "off"}
	if got := backend.Try(mute{pool, quotas}, off); got != off {
		t.Errorf("where nothing is enforced: %+v", got)
	}
}

// TestAnAdminsProject: one that has a limit is left only where quota is required.
func TestAnAdminsProject(t *testing.T) {
	for name, test := range map[string]struct {
		want  poolspec.Quota
		limit poolfs.Limit
		says  string // of a pool that stays plain
	}{
		"auto, no limit":         {want: poolspec.QuotaAuto},
		"auto, bytes":            {want: poolspec.QuotaAuto, limit: poolfs.Limit{Bytes: 1 << 20}, says: "1048576 bytes"},
		"auto, inodes":           {want: poolspec.QuotaAuto, limit: poolfs.Limit{Inodes: 1000}, says: "1000 inodes"},
		"auto, both":             {want: poolspec.QuotaAuto, limit: poolfs.Limit{Bytes: 1 << 20, Inodes: 1000}, says: "1048576 bytes and 1000 inodes"},
		"required, no limit":     {want: poolspec.QuotaRequired},
		"required, with a limit": {want: poolspec.QuotaRequired, limit: poolfs.Limit{Bytes: 1 << 20}},
	} {
		t.Run(name, func(t *testing.T) {
			pool, quotas := projectPool(t)
			err := errors.Join(quotas.SetLimit(42, test.limit), quotas.Count(".", 42), pool.Mkdir(poolfs.MetaDir, 0o700), pool.Mkdir(poolfs.StagingDir, 0o700),
				quotas.Count(poolfs.StagingDir, 0))
			if err != nil {
				t.Fatal(err)
			}
			found, err := backend.Choose(pool, test.want)
			if err != nil {
				t.Fatal(err)
			}
			want := uint32(0)
			if test.says == "" {
				if found.Name() != backend.NameProject || found.Left.Number != 42 || found.Left.Limit != test.limit {
					t.Errorf("%+v, want project quota, project 42 left", found)
				}
			} else {
				want = 42 // staging too: what is made there must be movable to csi/
				for _, part := range []string{"project 42", test.says, "outside that project", "quota: required"} {
					if found.Name() != backend.NamePlain || found.Left.Number != 0 || !strings.Contains(found.Why, part) {
						t.Errorf("%+v, want plain, and why with %q", found, part)
					}
				}
			}
			for _, dir := range []string{".", poolfs.StagingDir} {
				if got, err := quotas.CountedBy(dir); err != nil || got != want {
					t.Errorf("csi/%s counts to %d, %v; want %d", dir, got, err, want)
				}
			}
			if a, err := quotas.Account(42); err != nil || a.Limit != test.limit {
				t.Errorf("the project's limit is %+v, %v", a.Limit, err)
			}
			again, err := backend.Choose(pool, test.want)
			if err != nil || again.Backend != found.Backend || again.Why != found.Why || again.Left.Number != 0 {
				t.Errorf("a second look gives %+v, %v", again, err)
			}
		})
	}
}
