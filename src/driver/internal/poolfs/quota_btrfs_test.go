//go:build !vm

package poolfs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// realQuotas are those that an ordinary kernel has.
func realQuotas() map[string]func(t *testing.T) poolfs.FS {
	return map[string]func(t *testing.T) poolfs.FS{"btrfs": func(t *testing.T) poolfs.FS { return btrfsPool(t) }}
}

// btrfsPool is a pool on a new btrfs with simple quota.
func btrfsPool(tb testing.TB) poolfs.FS {
	tb.Helper()
	image, root := filepath.Join(tb.TempDir(), "image"), tb.TempDir()
	makeBtrfs(tb, image)
	run(tb, "mount", "-o", "loop", image, root)
	tb.Cleanup(func() { run(tb, "umount", root) })
	return newPool(tb, root)
}

func makeBtrfs(tb testing.TB, image string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test must run as root: it mounts a loop device")
	}
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30)); err != nil {
		tb.Fatal(err)
	}
	run(tb, "mkfs.btrfs", "-q", image)
}

func newPool(tb testing.TB, root string) poolfs.FS {
	tb.Helper()
	disk := opened(tb, poolfs.NewHost("/"), filepath.Join(root, "pool"))
	quotas, _ := poolfs.QuotasOf(disk)
	if on, why, err := quotas.Quota(); err != nil || on != poolfs.QuotaOff || why == "" {
		tb.Errorf("a new btrfs: %q, %q, %v; want no quota and why", on, why, err)
	}
	if err := quotas.EnableQuota(); err != nil {
		tb.Fatal(err)
	}
	return disk
}

// TestRemovalLeavesAnAdminsLimit: a volume that an admin has put into a group of his own as well is removed with all that is nested in it.
func TestRemovalLeavesAnAdminsLimit(t *testing.T) {
	const number, admins = poolfs.FirstNumber + 5, 100
	disk := btrfsPool(t)
	defer func() { _ = disk.Close() }()
	quotas, _ := poolfs.QuotasOf(disk)
	limit := poolfs.Limit{Bytes: 1 << 20}
	for _, err := range []error{
		quotas.SetLimit(number, limit), quotas.SetLimit(admins, limit), quotas.MkdirCounted("v", 0o700, number), quotas.Count("v", admins),
		quotas.MkdirCounted("v/nested", 0o700, admins), quotas.MkdirCounted("v/nested/deep", 0o700, admins),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := quotas.CountedBy("v"); err != nil || got != number {
		t.Errorf("the volume is counted by %d, %v", got, err)
	}
	if err := disk.RemoveTree(t.Context(), "v", nil); err != nil {
		t.Fatal(err)
	}
	if a, err := quotas.Account(admins); err != nil || a.Limit != limit {
		t.Errorf("the admin's group: %+v, %v", a, err)
	}
	if a, err := quotas.Account(number); err != nil || a.Limit != (poolfs.Limit{}) {
		t.Errorf("the volume's group: %+v, %v", a, err)
	}
}

func run(tb testing.TB, command ...string) {
	tb.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v\n%s", command, err, out)
	}
}

// TestBtrfsKeepsOrder cuts the power while a volume is being made: what is written of the image then is all that a machine finds when it
// is up again. Nobody has synced anything but what the test says.
func TestBtrfsKeepsOrder(t *testing.T) {
	const number, record, staged = uint32(1 << 30), poolfs.VolumesDir + "/v.json", poolfs.StagingDir + "/v"
	other := func(disk poolfs.FS) error {
		return poolfs.CreateFile(disk, poolfs.VolumesDir+"/other.json", []byte("{}"))
	}
	move := func(disk poolfs.FS) error { return disk.Rename(staged, "v") }
	for name, test := range map[string]struct {
		then []func(poolfs.FS) error
		want []string // what is there afterwards; nothing else that is looked for may be
	}{
		"nobody syncs":               {},
		"another volume's record is": {[]func(poolfs.FS) error{other}, []string{record, staged}},
		"moved, nobody syncs":        {[]func(poolfs.FS) error{other, move}, []string{record, staged}},
		"moved, another's record is": {[]func(poolfs.FS) error{move, other}, []string{record, "v"}},
		"moved and synced":           {[]func(poolfs.FS) error{move, func(disk poolfs.FS) error { return disk.Sync(".") }}, []string{record, "v"}},
	} {
		t.Run(name, func(t *testing.T) {
			after := powerCut(t, func(disk poolfs.FS) error {
				quotas, _ := poolfs.QuotasOf(disk)
				err := errors.Join(disk.Mkdir(poolfs.MetaDir, 0o700), disk.Mkdir(poolfs.VolumesDir, 0o700), disk.Mkdir(poolfs.StagingDir, 0o700),
					disk.Sync("."), disk.Sync(poolfs.MetaDir),
					poolfs.PrepareFile(disk, record, []byte("{}")), quotas.SetLimit(number, poolfs.Limit{Bytes: 1 << 20}),
					quotas.MkdirCounted(staged, 0o750, number), poolfs.PlaceFile(disk, record))
				for _, do := range test.then {
					err = errors.Join(err, do(disk))
				}
				return err
			})
			quotas, _ := poolfs.QuotasOf(after)
			for _, file := range []string{record, staged, "v"} {
				info, err := after.Stat(file)
				if there := err == nil; there != slices.Contains(test.want, file) {
					t.Errorf("%s is there: %v (%v), want %v", file, there, err, test.want)
				}
				if err != nil || file == record {
					continue
				}
				counted, err := quotas.CountedBy(file)
				limit, err2 := quotas.Account(number)
				if err != nil || err2 != nil || counted != number || limit.Limit.Bytes != 1<<20 || info.Mode.Perm() != 0o750 {
					t.Errorf("%s has mode %v and counts to %d with limit %d: %v, %v", file, info.Mode, counted, limit.Limit.Bytes, err, err2)
				}
			}
		})
	}
}

// powerCut does something on a new btrfs, and gives the pool as it is after a power cut at that moment.
func powerCut(t *testing.T, do func(poolfs.FS) error) poolfs.FS {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	image, left := filepath.Join(dir, "image"), filepath.Join(dir, "left")
	makeBtrfs(t, image)
	run(t, "mount", "-o", "loop", image, root)
	disk := newPool(t, root)
	err := do(disk)
	run(t, "cp", "--sparse=always", image, left)
	_ = disk.Close()
	run(t, "umount", root)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-o", "loop", left, root)
	t.Cleanup(func() { run(t, "umount", root) })
	after, err := poolfs.NewHost("/").Open(filepath.Join(root, "pool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = after.Close() })
	return after
}

func BenchmarkQuotaWith10000Accounts(b *testing.B) {
	const first, n = uint32(1 << 30), 10_000
	disk := btrfsPool(b)
	defer func() { _ = disk.Close() }()
	quotas, _ := poolfs.QuotasOf(disk)
	for i := range uint32(n) {
		if err := quotas.SetLimit(first+i, poolfs.Limit{Bytes: 1 << 30}); err != nil {
			b.Fatal(err)
		}
	}
	if err := quotas.MkdirCounted("v", 0o700, first); err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"list all": func() error {
			all, err := quotas.Accounts(first, first+n)
			if len(all) != n {
				return fmt.Errorf("%d accounts, %w", len(all), err)
			}
			return err
		},
		"one":       func() error { _, err := quotas.Account(first + n/2); return err },
		"limit":     func() error { return quotas.SetLimit(first, poolfs.Limit{Bytes: 1 << 30}) },
		"counted":   func() error { _, err := quotas.CountedBy("v"); return err },
		"again":     func() error { return quotas.Count("v", first) },
		"is it on?": func() error { _, _, err := quotas.Quota(); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
