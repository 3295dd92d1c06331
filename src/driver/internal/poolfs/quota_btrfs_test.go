//go:build !vm

package poolfs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	if os.Geteuid() != 0 {
		tb.Fatal("this test must run as root: it mounts a loop device")
	}
	image, root := filepath.Join(tb.TempDir(), "image"), tb.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30)); err != nil {
		tb.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.btrfs", "-q", image}, {"mount", "-o", "loop", image, root}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			tb.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	tb.Cleanup(func() {
		if out, err := exec.Command("umount", root).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v\n%s", err, out)
		}
	})
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
