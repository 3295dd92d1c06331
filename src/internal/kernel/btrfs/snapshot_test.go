package btrfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

func sync(tb testing.TB, f *os.File) {
	tb.Helper()
	must(tb, unix.Syncfs(int(f.Fd())))
}

func charged(tb testing.TB, top *os.File, group QgroupID) uint64 {
	tb.Helper()
	sync(tb, top)
	q, err := QgroupUsage(top, group)
	must(tb, err)
	return q.Referenced
}

// TestSnapshotIsChargedNothing: what it shares stays its source's, until nobody has it any more.
func TestSnapshotIsChargedNothing(t *testing.T) {
	top := disk(t)
	must(t, EnableSimpleQuota(top))
	path, group := volume(t, top, "v", 1<<32, 64*mib)
	must(t, fill(filepath.Join(path, "data"), 40*mib))
	must(t, CreateSubvolume(open(t, path), "inner", group))

	must(t, CreateSnapshot(top, "free", open(t, path), 0))
	own := NewQgroupID(1, 1<<32+1)
	must(t, CreateQgroup(top, own))
	must(t, SetQgroupLimit(top, own, 8*mib))
	must(t, CreateSnapshot(top, "limited", open(t, path), own))

	free := open(t, filepath.Join(top.Name(), "free"))
	id, err := SubvolumeID(free)
	must(t, err)
	groups, err := Groups(top, NewQgroupID(0, id))
	if err != nil || len(groups) != 0 {
		t.Errorf("the snapshot is in %v, %v", groups, err)
	}
	if nested, err := CountNested(open(t, path)); err != nil || nested != 1 {
		t.Errorf("%d nested, %v", nested, err)
	}
	if nested, err := CountNested(free); err != nil || nested != 0 {
		t.Errorf("%d nested in the snapshot, %v", nested, err)
	}
	if source, own := charged(t, top, group), charged(t, top, own); source < 40*mib || source > 42*mib || own > mib {
		t.Errorf("the source is charged %d, the copy %d", source, own)
	}
	wants(t, fill(filepath.Join(top.Name(), "limited", "more"), 16*mib), unix.EDQUOT)
	wants(t, os.WriteFile(filepath.Join(top.Name(), "free", "inner", "f"), nil, 0o600), unix.EACCES)
}

// TestHasRemoved: a destroyed subvolume counts until the kernel has freed what it held, which it begins
// to do with every commit of its own.
func TestHasRemoved(t *testing.T) {
	top := disk(t, "commit=1")
	must(t, EnableSimpleQuota(top))
	path, group := volume(t, top, "v", 1<<32, 64*mib)
	must(t, fill(filepath.Join(path, "data"), 40*mib))
	if has, err := HasRemoved(top); err != nil || has {
		t.Errorf("before: %v, %v", has, err)
	}
	must(t, DestroySubvolume(top, "v"))
	if has, err := HasRemoved(top); err != nil || !has {
		t.Errorf("at once: %v, %v", has, err)
	}
	waittest.Until(t, "what was removed is gone", func() bool {
		has, err := HasRemoved(top)
		must(t, err)
		sync(t, top)
		return !has
	})
	if left := charged(t, top, group); left != 0 {
		t.Errorf("%d bytes are charged after it", left)
	}
}
