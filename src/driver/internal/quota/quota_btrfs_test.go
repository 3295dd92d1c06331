//go:build !vm

package quota

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// reals are those that an ordinary kernel has.
func reals() map[string]real {
	return map[string]real{"btrfs": {Btrfs, btrfsDisk}}
}

func btrfsDisk(tb testing.TB) string {
	tb.Helper()
	return mounttest.Disk(tb, "btrfs", 1<<30)
}

func TestDetectBtrfs(t *testing.T) {
	p := open(t, btrfsDisk(t))
	q := New(t.TempDir())
	looks := func(enable bool, name string, parts ...string) Backend {
		t.Helper()
		b, err := q.Detect(p, poolspec.QuotaRequired, enable)
		must(t, err)
		for _, part := range parts {
			if b.Name != name || !strings.Contains(b.Reason+strings.Join(b.Changes, ""), part) {
				t.Errorf("%+v, want %s with %q", b, name, part)
			}
		}
		return b
	}
	looks(false, Plain, "btrfs quota enable --simple")
	b := looks(true, Btrfs, "kernels before 6.7")
	if b.Enforcement != Strict || !b.Ordered || b.Reason != "" {
		t.Errorf("%+v", b)
	}
	if b = looks(true, Btrfs, ""); b.Changes != nil {
		t.Errorf("again: %+v", b)
	}
	must(t, asWithout(unix.CAP_SYS_ADMIN, func() error {
		b, err := q.Detect(p, poolspec.QuotaAuto, false)
		if err != nil || b.Name != Plain || !strings.Contains(b.Reason, "may not ask") {
			t.Errorf("auto, without the right to look: %+v, %v", b, err)
		}
		if b, err := q.Detect(p, poolspec.QuotaRequired, false); err == nil {
			t.Errorf("required, without the right to look: %+v", b)
		}
		return nil
	}))
	mounttest.Run(t, "btrfs", "quota", "disable", p.root)
	mounttest.Run(t, "btrfs", "quota", "enable", p.root)
	looks(true, Plain, "btrfs quota disable", "btrfs quota enable --simple", "forgotten")
	if b, err := q.Detect(p, poolspec.QuotaNone, false); err != nil || !strings.Contains(b.Reason, "quota: none") {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestDetectWithoutProjectQuota(t *testing.T) {
	for _, kind := range []string{"xfs", "ext4"} {
		b, err := New(t.TempDir()).Detect(open(t, mounttest.Disk(t, kind, 1<<30)), poolspec.QuotaRequired, true)
		if err != nil || b.Name != Plain || !strings.Contains(b.Reason, "prjquota") {
			t.Errorf("%s: %+v, %v", kind, b, err)
		}
	}
}

func TestRandomIDs(t *testing.T) {
	var all, none ID = 0, 1<<groupBits - 1
	for range 1000 {
		id := randomID()
		if id < 1<<32 || id >= 1<<groupBits {
			t.Fatalf("%#x", id)
		}
		all, none = all|id, none&id
	}
	if all != 1<<47-1 || none != 0 {
		t.Errorf("bits that were ever set: %#x, that always were: %#x", all, none)
	}
}

func TestBtrfsRefuses(t *testing.T) {
	p := open(t, btrfsDisk(t))
	l := detect(t, New(t.TempDir()), p).On(p)
	never := func(ID) error { t.Error("claimed"); return nil }
	_, err := l.Make("v", 0o700, Limit{Bytes: mib, Inodes: 10}, never)
	wants(t, err, ErrUnsupported, "inodeLimit")
	_, err = l.Make("v", 0o700, Limit{Bytes: 64 << 10}, never)
	wants(t, err, ErrTooSmall)
	id, err := l.Make("v", 0o700, Limit{Bytes: leastBtrfs}, claimed)
	must(t, err)
	must(t, os.WriteFile(p.dir+"/v/file", []byte("x"), 0o600))
	wants(t, l.Set("v", id, Limit{Bytes: 64 << 10}), ErrTooSmall)
}

// TestCheckRejoins: what a process in the pod has taken out of the volume's limit counts to it again.
func TestCheckRejoins(t *testing.T) {
	p := open(t, btrfsDisk(t))
	l := detect(t, New(t.TempDir()), p).On(p)
	id, err := l.Make("v", 0o700, Limit{Bytes: 64 * mib}, claimed)
	must(t, err)
	mounttest.Run(t, "btrfs", "subvolume", "create", p.dir+"/v/nested")
	must(t, withDirectory(p, ".", func(top *os.File) error {
		return withDirectory(p, "v/nested", func(nested *os.File) error {
			n, err := btrfs.SubvolumeID(nested)
			return errors.Join(err, btrfs.UnassignQgroup(top, btrfs.NewQgroupID(0, n), qgroupOf(id)))
		})
	}))
	must(t, fill(p.dir+"/v/nested/file", 32*mib))
	checkState(t, l, id, State{ID: id, Limit: Limit{Bytes: 64 * mib}, Ordered: true})
	must(t, syncfs(p))
	if used, err := l.Usage([]ID{id}); err != nil || used[id].Bytes < 32*mib {
		t.Errorf("%v, %v", used, err)
	}
}

// TestEnforceBtrfs ties a subvolume that somebody has put there.
func TestEnforceBtrfs(t *testing.T) {
	p := open(t, btrfsDisk(t))
	b := detect(t, New(t.TempDir()), p)
	l := b.On(p)
	other, err := l.Make("other", 0o700, Limit{Bytes: 64 * mib}, claimed)
	must(t, err)
	mounttest.Run(t, "btrfs", "subvolume", "create", p.dir+"/v")
	must(t, l.(btrfsLimits).inspect("v", func(top *os.File, n uint64, _ []btrfs.QgroupID) error {
		return btrfs.AssignQgroup(top, btrfs.NewQgroupID(0, n), qgroupOf(other)) // it counts to another volume
	}))
	var claims []ID
	id, err := b.NewID(p, func(id ID) error { claims = append(claims, id); return nil })
	if err != nil || !slices.Equal(claims, []ID{id}) {
		t.Fatalf("%d, %v, %v", id, err, claims)
	}
	must(t, l.Set("v", id, Limit{})) // as if an admin had removed it
	for range 2 {
		must(t, b.Enforce(t.Context(), p, Tree{Name: "v", ID: id, Cursor: &disk.Cursor{}}, nil))
	}
	must(t, l.Set("v", id, Limit{Bytes: 8 * mib}))
	checkState(t, l, id, State{ID: id, Limit: Limit{Bytes: 8 * mib}, Ordered: true})
	checkState(t, l, other, State{ID: id, Limit: Limit{Bytes: 8 * mib}})
	if err := fill(p.dir+"/v/file", 16*mib); !errors.Is(err, syscall.EDQUOT) && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("8 MiB take 16: %v", err)
	}
	must(t, p.Mkdir("plain", 0o700))
	err = b.Enforce(t.Context(), p, Tree{Name: "plain", ID: id, Cursor: &disk.Cursor{}}, nil)
	wants(t, err, ErrUnsupported, "cp -a --reflink=never plain/. plain.new/")
}

// TestBtrfsKeepsOrder cuts the power while a volume is being made: what is written of the image then is all that a
// machine finds when it is up again. Nobody has synced anything but what the test says.
func TestBtrfsKeepsOrder(t *testing.T) {
	const record, staged = disk.VolumesDir + "/v.json", disk.StagingDir + "/v"
	other := func(d disk.FS) error { return disk.CreateFile(d, disk.VolumesDir+"/other.json", []byte("{}")) }
	move := func(d disk.FS) error { return d.Rename(staged, "v") }
	sync := func(d disk.FS) error { return d.Sync(".") }
	for name, test := range map[string]struct {
		then []func(disk.FS) error
		want []string // what is there afterwards; nothing else that is looked for may be
	}{
		"nobody syncs":               {},
		"another volume's record is": {[]func(disk.FS) error{other}, []string{record, staged}},
		"moved, nobody syncs":        {[]func(disk.FS) error{other, move}, []string{record, staged}},
		"moved, another's record is": {[]func(disk.FS) error{move, other}, []string{record, "v"}},
		"moved and synced":           {[]func(disk.FS) error{move, sync}, []string{record, "v"}},
	} {
		t.Run(name, func(t *testing.T) {
			var id ID
			after := powerCut(t, func(p pool) (err error) {
				l := detect(t, New(t.TempDir()), p).On(p)
				err = errors.Join(syncfs(p), disk.PrepareFile(p, record, []byte("{}")))
				id, _ = l.Make(staged, 0o750, Limit{Bytes: mib}, claimed)
				err = errors.Join(err, disk.PlaceFile(p, record))
				for _, do := range test.then {
					err = errors.Join(err, do(p))
				}
				return err
			})
			l := btrfsLimits{after}
			for _, file := range []string{record, staged, "v"} {
				info, err := after.Stat(file)
				if there := err == nil; there != slices.Contains(test.want, file) {
					t.Errorf("%s is there: %v (%v), want %v", file, there, err, test.want)
				}
				if err != nil || file == record {
					continue
				}
				state, err := l.Check(file, id)
				if err != nil || state.ID != id || state.Limit.Bytes != mib || info.Mode.Perm() != 0o750 {
					t.Errorf("%s has mode %v and counts as %+v, %v; want ID %d", file, info.Mode, state, err, id)
				}
			}
		})
	}
}

// powerCut does something on a new btrfs, and gives the pool as it is after a power cut at that moment.
func powerCut(t *testing.T, do func(pool) error) disk.FS {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	before, left := filepath.Join(dir, "image"), filepath.Join(dir, "left")
	mounttest.Image(t, before, "btrfs", 1<<30)
	mounttest.Loop(t, before, root)
	p := open(t, root)
	err := do(p)
	mounttest.Run(t, "cp", "--sparse=always", before, left)
	_ = p.Close()
	mounttest.Run(t, "umount", root)
	must(t, err)
	mounttest.Loop(t, left, root)
	after, err := disk.NewHost("/").Open(filepath.Join(root, "pool"))
	must(t, err)
	t.Cleanup(func() { _ = after.Close() })
	return after
}
