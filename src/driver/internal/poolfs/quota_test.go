package poolfs_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
)

// onEachQuota runs a test on an open pool of every implementation that has a quota on.
func onEachQuota(t *testing.T, test func(t *testing.T, disk poolfs.FS, quotas poolfs.Quotas)) {
	t.Helper()
	run := func(name string, open func(t *testing.T) poolfs.FS) {
		t.Run(name, func(t *testing.T) {
			disk := open(t)
			defer func() { _ = disk.Close() }()
			quotas, ok := poolfs.QuotasOf(disk)
			if !ok {
				t.Fatalf("%T has no quota", disk)
			}
			test(t, disk, quotas)
		})
	}
	for _, on := range []poolfs.Quota{poolfs.QuotaProject, poolfs.QuotaSimple, poolfs.QuotaFull} {
		run("memfs "+string(on), func(t *testing.T) poolfs.FS {
			d := memfs.New()
			d.AddDir("/pool")
			d.SetQuota("/pool", on)
			return opened(t, d, "/pool")
		})
	}
	for name, open := range realQuotas() {
		run(name, open)
	}
}

func opened(tb testing.TB, d poolfs.Disk, path string) poolfs.FS {
	tb.Helper()
	if err := d.Create(path); err != nil {
		tb.Fatal(err)
	}
	disk, err := d.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	return disk
}

// TestQuotas holds the in-memory disk and the real ones to the same words.
func TestQuotas(t *testing.T) {
	const first = uint32(1 << 30)
	limit := poolfs.Limit{Bytes: 1 << 20}
	onEachQuota(t, func(t *testing.T, disk poolfs.FS, quotas poolfs.Quotas) {
		on, _, err := quotas.Quota()
		if err != nil || on == poolfs.QuotaOff {
			t.Fatalf("quota %q, %v", on, err)
		}
		if a, err := quotas.Account(first); err != nil || a.Limit != (poolfs.Limit{}) || a.BytesUsed != 0 {
			t.Errorf("an account that is not there: %+v, %v", a, err)
		}
		for _, number := range []uint32{first, first + 7, first + 100} {
			if err := quotas.SetLimit(number, limit); err != nil {
				t.Fatal(err)
			}
		}
		checkCounted(t, disk, quotas, first)
		var listed []uint32
		all, err := quotas.Accounts(first, first+99)
		for _, a := range all {
			listed = append(listed, a.Number)
		}
		slices.Sort(listed)
		if err != nil || !slices.Equal(listed, []uint32{first, first + 7}) {
			t.Errorf("accounts in the range: %v, %v", listed, err)
		}
		checkRemoved(t, disk, quotas, first)
		if counts, err := quotas.Counts(); err != nil || counts != poolfs.CountsRight {
			t.Errorf("it counts %q, %v", counts, err)
		}
		if on == poolfs.QuotaProject { // a directory that is no subvolume cannot count on btrfs
			checkTree(t, disk, quotas, first+200)
		}
	})
}

// checkTree ties a directory that was put there by hand.
func checkTree(t *testing.T, disk poolfs.FS, quotas poolfs.Quotas, number uint32) {
	t.Helper()
	err := errors.Join(disk.Mkdir("copy", 0o700), disk.Mkdir("copy/a", 0o700), disk.Mkdir("copy/a/b", 0o700),
		disk.WriteFile("copy/file", []byte("1"), 0o600), disk.WriteFile("copy/a/b/file", []byte("2"), 0o400))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := quotas.CountTree(gone, "copy", number); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	if got, err := quotas.CountedBy("copy"); err != nil || got != 0 {
		t.Errorf("the directory is tied before its content: %d, %v", got, err)
	}
	for range 2 {
		if err := quotas.CountTree(t.Context(), "copy", number); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"copy", "copy/a", "copy/a/b"} {
		if got, err := quotas.CountedBy(name); err != nil || got != number {
			t.Errorf("%s is counted by %d, %v", name, got, err)
		}
	}
	if a, err := quotas.Account(number); err != nil || a.InodesUsed != 5 {
		t.Errorf("%+v, %v; want 5 inodes", a, err)
	}
	if err := disk.Rename("copy/file", "copy/a/moved"); err != nil {
		t.Errorf("rename inside: %v", err)
	}
	if err := quotas.CountTree(t.Context(), "missing", number); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
	if err := disk.RemoveTree(t.Context(), "copy", nil); err != nil {
		t.Error(err)
	}
}

// checkCounted makes a directory and moves it, as a create does.
func checkCounted(t *testing.T, disk poolfs.FS, quotas poolfs.Quotas, number uint32) {
	t.Helper()
	if err := disk.Mkdir("staging", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := quotas.MkdirCounted("staging/v", 0o750|fs.ModeSetgid, number); err != nil {
		t.Fatal(err)
	}
	if err := quotas.MkdirCounted("staging/v", 0o750, number); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	for _, name := range []string{"staging/v", "staging"} {
		if err := disk.Sync(name); err != nil {
			t.Error(err)
		}
	}
	if err := disk.Rename("staging/v", "v"); err != nil {
		t.Fatalf("move it out of staging: %v", err)
	}
	if info, err := disk.Stat("v"); err != nil || info.Mode != fs.ModeDir|fs.ModeSetgid|0o750 {
		t.Errorf("mode %v, %v", info.Mode, err)
	}
	for name, want := range map[string]uint32{"v": number, ".": 0, "staging": 0} {
		if got, err := quotas.CountedBy(name); err != nil || got != want {
			t.Errorf("%s is counted by %d, %v; want %d", name, got, err, want)
		}
	}
	if err := quotas.Count("v", number); err != nil {
		t.Errorf("counted again: %v", err)
	}
	if _, err := quotas.CountedBy("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
	if err := disk.WriteFile("v/file", []byte("12345"), 0o600); err != nil {
		t.Error(err)
	}
	if err := quotas.SetLimit(number, poolfs.Limit{Bytes: 2 << 20}); err != nil {
		t.Error(err)
	}
	if a, err := quotas.Account(number); err != nil || a.Number != number || a.Limit.Bytes != 2<<20 {
		t.Errorf("account: %+v, %v", a, err)
	}
}

func checkRemoved(t *testing.T, disk poolfs.FS, quotas poolfs.Quotas, number uint32) {
	t.Helper()
	if err := quotas.RemoveAccount(number); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the account of what is there is removed: %v", err)
	}
	if a, err := quotas.Account(number); err != nil || a.Limit.Bytes != 2<<20 {
		t.Errorf("after that: %+v, %v; want the limit as it was", a, err)
	}
	if err := disk.RemoveTree(t.Context(), "v", func(context.Context) error { return syscall.EINTR }); !errors.Is(err, syscall.EINTR) {
		t.Errorf("a removal that is stopped: %v", err)
	}
	if err := disk.RemoveTree(t.Context(), "v", nil); err != nil {
		t.Errorf("remove: %v", err)
	}
	for range 2 {
		err := quotas.RemoveAccount(number)
		for errors.Is(err, syscall.EBUSY) { // XFS counts a removed inode for a while
			err = quotas.RemoveAccount(number)
		}
		if err != nil {
			t.Errorf("remove the account: %v", err)
		}
	}
	if a, err := quotas.Account(number); err != nil || a.Limit != (poolfs.Limit{}) || a.InodesUsed != 0 {
		t.Errorf("after its removal: %+v, %v", a, err)
	}
}
