package backend_test

import (
	"errors"
	"io/fs"
	"reflect"
	"slices"
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
	if got := backend.Try(pool, found); !reflect.DeepEqual(got, found) {
		t.Errorf("with the right to set limits: %+v, want %+v", got, found)
	}
	all, err := quotas.Accounts(1, 1<<32-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Limit != (poolfs.Limit{}) {
			t.Errorf("the try has left %+v", a)
		}
	}
	if got := backend.Try(mute{pool, quotas}, found); got.Name() != backend.NamePlain || !strings.Contains(got.Why, "may not set limits") || !strings.Contains(got.Why, "privileged") {
		t.Errorf("without: %+v, want plain, why and what to do", got)
	}
	off := backend.Choice{Backend: backend.Plain{}, Why: "off"}
	if got := backend.Try(mute{pool, quotas}, off); !reflect.DeepEqual(got, off) {
		t.Errorf("where nothing is enforced: %+v", got)
	}
}

// TestAnAdminsProjectIsNotLeftInVain by a driver that may not set limits, and then refuses the pool.
func TestAnAdminsProjectIsNotLeftInVain(t *testing.T) {
	pool, quotas := projectPool(t)
	if err := errors.Join(quotas.SetLimit(42, poolfs.Limit{Bytes: 1 << 20}), quotas.Count(".", 42)); err != nil {
		t.Fatal(err)
	}
	found, err := backend.Choose(mute{pool, quotas}, poolspec.QuotaRequired)
	if err != nil || found.Name() != backend.NamePlain || len(found.Left) > 0 || !strings.Contains(found.Why, "may not set limits") {
		t.Errorf("%+v, %v; want plain, and why", found, err)
	}
	if by, err := quotas.CountedBy("."); err != nil || by != 42 {
		t.Errorf("csi/ counts to %d, %v", by, err)
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
				if found.Name() != backend.NameProject || len(found.Left) != 1 || found.Left[0].Number != 42 || found.Left[0].Limit != test.limit {
					t.Errorf("%+v, want project quota, project 42 left", found)
				}
			} else {
				want = 42 // staging too: what is made there must be movable to csi/
				for _, part := range []string{"project 42", test.says, "outside that project", "quota: required"} {
					if found.Name() != backend.NamePlain || found.Left != nil || !strings.Contains(found.Why, part) {
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
			if err != nil || again.Backend != found.Backend || again.Why != found.Why || again.Left != nil {
				t.Errorf("a second look gives %+v, %v", again, err)
			}
		})
	}
}

// twoProjects puts csi/ and csi/.hpp/staging of a pool into a project each.
func twoProjects(t *testing.T) (pool poolfs.FS, quotas poolfs.Quotas, want []poolfs.Account) {
	t.Helper()
	pool, quotas = projectPool(t)
	want = []poolfs.Account{{Number: 42, Limit: poolfs.Limit{Bytes: 1 << 20}}, {Number: 43, Limit: poolfs.Limit{Inodes: 1000}}}
	err := errors.Join(pool.Mkdir(poolfs.MetaDir, 0o700), pool.Mkdir(poolfs.StagingDir, 0o700), pool.Mkdir(poolfs.TrashDir, 0o700),
		quotas.Count(poolfs.MetaDir, 0), quotas.Count(".", 42), quotas.Count(poolfs.StagingDir, 43), quotas.Count(poolfs.TrashDir, 42),
		quotas.SetLimit(42, want[0].Limit), quotas.SetLimit(43, want[1].Limit))
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if want[i], err = quotas.Account(want[i].Number); err != nil {
			t.Fatal(err)
		}
	}
	return pool, quotas, want
}

// TestEachProjectThatWasLeftIsTold: each has a limit that holds no longer.
func TestEachProjectThatWasLeftIsTold(t *testing.T) {
	pool, _, want := twoProjects(t)
	found, err := backend.Choose(pool, poolspec.QuotaRequired)
	if err != nil || found.Name() != backend.NameProject || !slices.Equal(found.Left, want) {
		t.Errorf("%+v, %v; want project quota, and left %+v", found, err, want)
	}
}

// stuck is a disk on which csi/.hpp/staging stays in its project.
type stuck struct {
	poolfs.FS
	poolfs.Quotas
}

func (s stuck) Count(name string, number uint32) error {
	if name == poolfs.StagingDir {
		return &fs.PathError{Op: "set project", Path: name, Err: unix.EIO}
	}
	return s.Quotas.Count(name, number)
}

// TestAProjectThatWasLeftIsToldWhateverFailsThen: csi/ is out of its project for good.
func TestAProjectThatWasLeftIsToldWhateverFailsThen(t *testing.T) {
	pool, quotas, want := twoProjects(t)
	found, err := backend.Choose(stuck{pool, quotas}, poolspec.QuotaRequired)
	if err != nil || found.Name() != backend.NamePlain || !strings.Contains(found.Why, "csi/.hpp/staging") || !slices.Equal(found.Left, want[:1]) {
		t.Errorf("%+v, %v; want plain, why, and left %+v", found, err, want[:1])
	}
}
