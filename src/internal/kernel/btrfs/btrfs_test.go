package btrfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

const mib = 1 << 20

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wants(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("error %v, want %v", err, want)
	}
}

// disk makes a btrfs filesystem in a file, mounts it with what options there are, and opens its top directory.
func disk(tb testing.TB, options ...string) *os.File {
	tb.Helper()
	return open(tb, mounttest.Disk(tb, "btrfs", 4<<30, options...)) // 40,000 subvolumes take 1.3 GiB
}

func open(tb testing.TB, path string) *os.File {
	tb.Helper()
	f, err := os.Open(path)
	must(tb, err)
	tb.Cleanup(func() { f.Close() })
	return f
}

// volume makes a subvolume in a limited level-1 qgroup of its own, as the driver does.
func volume(tb testing.TB, top *os.File, name string, number, limit uint64) (string, QgroupID) {
	tb.Helper()
	group := NewQgroupID(1, number)
	must(tb, CreateQgroup(top, group))
	must(tb, SetQgroupLimit(top, group, limit))
	must(tb, CreateSubvolume(top, name, group))
	return filepath.Join(top.Name(), name), group
}

// fill writes data that does not compress until it is n bytes or an error.
func fill(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, mib)
	for n > 0 {
		rand.Read(block)
		written, err := f.Write(block[:min(n, mib)])
		if err != nil {
			return err
		}
		n -= written
	}
	return f.Sync()
}

func full(tb testing.TB, err error) {
	tb.Helper()
	if !errors.Is(err, syscall.EDQUOT) && !errors.Is(err, syscall.ENOSPC) {
		tb.Errorf("error %v, want EDQUOT or ENOSPC", err)
	}
}

// as does something as another user, with none of root's capabilities.
func as(tb testing.TB, uid int, do func() error) error {
	tb.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its credentials
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			result <- errno
			return
		}
		result <- do()
	}()
	return <-result
}

// simple is a new filesystem with simple quota.
func simple(tb testing.TB, options ...string) *os.File {
	tb.Helper()
	top := disk(tb, options...)
	must(tb, EnableSimpleQuota(top))
	return top
}

// commit writes what was changed so far to the disk, qgroups and limits too, and brings counts up to date.
func commit(tb testing.TB, f *os.File) {
	tb.Helper()
	must(tb, unix.Syncfs(int(f.Fd())))
}

// usage is a qgroup's as of now.
func usage(tb testing.TB, top *os.File, q QgroupID) Qgroup {
	tb.Helper()
	commit(tb, top)
	got, err := QgroupUsage(top, q)
	must(tb, err)
	return got
}

func TestLimitHolds(t *testing.T) {
	top := simple(t)
	const limit = 16 * mib
	dir, group := volume(t, top, "volume", 1, limit)
	must(t, fill(dir+"/fits", 12*mib))
	full(t, fill(dir+"/past", 8*mib))
	if got := usage(t, top, group); got.Referenced > limit || got.Referenced < 12*mib || got.Limit != limit {
		t.Errorf("%+v after writing past the limit of %d", got, limit)
	}
	must(t, os.Remove(dir+"/past"))
	must(t, SetQgroupLimit(top, group, 2*limit))
	must(t, fill(dir+"/past", 12*mib))

	must(t, SetQgroupLimit(top, group, limit)) // now below what is used
	full(t, fill(dir+"/more", mib))
	if got := usage(t, top, group); got.Referenced < 24*mib || got.Limit != limit {
		t.Errorf("%+v after a limit below what is used", got)
	}
	must(t, SetQgroupLimit(top, group, 0))
	must(t, fill(dir+"/more", 24*mib))
	if got := usage(t, top, group); got.Limit != 0 {
		t.Errorf("%+v after clearing the limit", got)
	}
}

// TestRemoveInFullVolume checks that a pod can help itself.
func TestRemoveInFullVolume(t *testing.T) {
	top := simple(t)
	dir, group := volume(t, top, "volume", 1, 8*mib)
	full(t, fill(dir+"/file", 16*mib))
	must(t, os.Remove(dir+"/file"))
	if got := usage(t, top, group); got.Referenced > mib {
		t.Errorf("%+v after removing all", got)
	}
	must(t, fill(dir+"/file", 6*mib))
}

// nest makes a subvolume in a directory, opened by whoever calls; with group 0 where the kernel decides.
func nest(dir, name string, group QgroupID) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if group == 0 {
		return doNamed(f, "create subvolume", 24, name, &volArgsV2{})
	}
	return CreateSubvolume(f, name, group)
}

func TestNestedSubvolumeCountsUnderSimpleQuota(t *testing.T) {
	top := simple(t)
	dir, group := volume(t, top, "volume", 1, 16*mib)
	must(t, os.Chown(dir, 1000, 1000))
	must(t, as(t, 1000, func() error { return nest(dir, "nested", 0) }))
	must(t, as(t, 1000, func() error { return fill(dir+"/nested/fits", 6*mib) }))
	mounttest.Run(t, "btrfs", "subvolume", "snapshot", dir+"/nested", dir+"/snapshot")
	must(t, as(t, 1000, func() error { return fill(dir+"/snapshot/fits", 4*mib) }))
	full(t, as(t, 1000, func() error { return fill(dir+"/snapshot/past", 16*mib) }))
	full(t, as(t, 1000, func() error { return fill(dir+"/nested/past", 16*mib) }))
	if got := usage(t, top, group); got.Referenced > 16*mib {
		t.Errorf("%+v", got)
	}
}

// TestInheritEscapesSimpleQuota is the escape that docs/explanation/enforcement.md names: the caller chooses the
// qgroups of a subvolume that it makes.
func TestInheritEscapesSimpleQuota(t *testing.T) {
	top := simple(t)
	dir, group := volume(t, top, "volume", 1, 16*mib)
	other, _ := volume(t, top, "other", 2, 64*mib)
	must(t, os.Chown(dir, 1000, 1000))
	none := &volArgsV2{flags: subvolumeQgroupInherit, size: 72, inherit: &qgroupInherit{}}
	escape := func(name string) error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		return doNamed(f, "create subvolume", 24, name, none)
	}
	must(t, as(t, 1000, func() error { return escape("none") }))
	must(t, as(t, 1000, func() error { return nest(dir, "theirs", NewQgroupID(1, 2)) }))
	for _, nested := range []string{"/none", "/theirs"} {
		if err := as(t, 1000, func() error { return fill(dir+nested+"/past", 32*mib) }); err != nil {
			t.Errorf("%s: %v: the kernel holds the limit now; say so in docs/explanation/enforcement.md", nested, err)
		}
	}
	full(t, fill(other+"/file", 48*mib)) // the other volume pays
	rejoined(t, top, dir, group, "none", "theirs")
	must(t, fill(other+"/file", 48*mib))
	full(t, as(t, 1000, func() error { return escape("again") })) // and there is no next time
}

// rejoined checks that Rejoin ends the escape of subvolumes.
func rejoined(t *testing.T, top *os.File, dir string, group QgroupID, escaped ...string) {
	t.Helper()
	commit(t, top)
	for range 2 {
		must(t, Rejoin(top, subvolume(t, dir), group))
		for _, name := range escaped {
			groups, err := Groups(top, NewQgroupID(0, subvolume(t, dir+"/"+name)))
			if err != nil || !slices.Equal(groups, []QgroupID{group}) {
				t.Errorf("%s is in %v, %v; want only %v", name, groups, err, group)
			}
		}
	}
	if got := usage(t, top, group); got.Referenced < uint64(len(escaped))*32*mib {
		t.Errorf("%+v, want what escaped in it", got)
	}
	full(t, fill(dir+"/more", mib))
}

// TestStatfs records what df says in a volume.
func TestStatfs(t *testing.T) {
	top := simple(t)
	dir, _ := volume(t, top, "volume", 1, 16*mib)
	var whole, inside unix.Statfs_t
	must(t, unix.Statfs(top.Name(), &whole))
	must(t, unix.Statfs(dir, &inside))
	if inside.Blocks != whole.Blocks {
		t.Errorf("df shows %d blocks in the volume and %d in the pool: say so in docs/explanation/enforcement.md",
			inside.Blocks, whole.Blocks)
	}
}

func TestUsage(t *testing.T) {
	top := simple(t)
	const volumes = 150 // more than one answer of a search holds
	for i := range uint64(volumes) {
		must(t, CreateQgroup(top, NewQgroupID(1, i+1)))
		must(t, SetQgroupLimit(top, NewQgroupID(1, i+1), (i+1)*mib))
	}
	must(t, CreateSubvolume(top, "volume", NewQgroupID(1, 7)))
	id := subvolume(t, top.Name()+"/volume")
	must(t, fill(top.Name()+"/volume/file", 4*mib))
	if got := usage(t, top, NewQgroupID(1, 7)); got.Referenced < 4*mib || got.Referenced > 5*mib || got.Limit != 7*mib {
		t.Errorf("%+v", got)
	}
	all, err := Qgroups(top, NewQgroupID(1, 0), NewQgroupID(1, math.MaxUint64))
	must(t, err)
	if len(all) != volumes {
		t.Fatalf("%d qgroups, want %d", len(all), volumes)
	}
	for i, q := range all {
		if q.ID != NewQgroupID(1, uint64(i+1)) || q.Limit != uint64(i+1)*mib {
			t.Errorf("%d: %+v", i, q)
		}
	}
	groups, err := Groups(top, NewQgroupID(0, id))
	if err != nil || !slices.Equal(groups, []QgroupID{NewQgroupID(1, 7)}) {
		t.Errorf("groups %v, %v", groups, err)
	}
	_, err = QgroupUsage(top, NewQgroupID(1, volumes+1))
	wants(t, err, fs.ErrNotExist)
	wants(t, CreateQgroup(top, NewQgroupID(1, 7)), fs.ErrExist)
	must(t, AssignQgroup(top, NewQgroupID(0, id), NewQgroupID(1, 7)))
	wants(t, RemoveQgroup(top, NewQgroupID(1, volumes+1)), fs.ErrNotExist)
}

func pass(ctx context.Context) error { return ctx.Err() }

// limitOf is a qgroup's limit.
func limitOf(t *testing.T, top *os.File, q QgroupID) uint64 {
	t.Helper()
	got, err := QgroupUsage(top, q)
	must(t, err)
	return got.Limit
}

// TestDestroyTreeLeavesAllLimits: the group of the volume, of which somebody has made a copy, and that of an admin.
func TestDestroyTreeLeavesAllLimits(t *testing.T) {
	top := simple(t)
	dir, group := volume(t, top, "volume", 1<<30, 32*mib)
	shared := NewQgroupID(1, 100)
	must(t, CreateQgroup(top, shared))
	must(t, AssignQgroup(top, NewQgroupID(0, subvolume(t, dir)), shared))
	must(t, SetQgroupLimit(top, shared, 16*mib))
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/nested")
	must(t, fill(dir+"/nested/file", mib))
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/nested/deep")
	mounttest.Run(t, "btrfs", "subvolume", "snapshot", "-r", dir+"/nested/deep", dir+"/nested/read-only")
	full(t, fill(dir+"/file", 32*mib))
	mounttest.Run(t, "btrfs", "subvolume", "create", top.Name()+"/copy")
	copied := NewQgroupID(0, subvolume(t, top.Name()+"/copy"))
	must(t, AssignQgroup(top, copied, group))
	commit(t, top)
	must(t, DestroyTree(t.Context(), top, "volume", pass))
	if a, b := limitOf(t, top, shared), limitOf(t, top, group); a != 16*mib || b != 32*mib {
		t.Errorf("limits of %d and %d are left", a, b)
	}
	if groups, err := Groups(top, copied); err != nil || !slices.Equal(groups, []QgroupID{group}) {
		t.Errorf("the copy is in %v, %v", groups, err)
	}
	full(t, fill(top.Name()+"/copy/file", 64*mib))
}

// TestDestroyTreeWithALimitOfItsOwn, which an admin has set on the subvolume itself.
func TestDestroyTreeWithALimitOfItsOwn(t *testing.T) {
	top := simple(t)
	dir, _ := volume(t, top, "volume", 1<<30, 64*mib)
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/nested")
	must(t, SetQgroupLimit(top, NewQgroupID(0, subvolume(t, dir)), 8*mib))
	full(t, fill(dir+"/file", 16*mib))
	must(t, DestroyTree(t.Context(), top, "volume", pass))
}

// TestDestroyTreeReadOnly: what holds others can be read-only, and so can the top.
func TestDestroyTreeReadOnly(t *testing.T) {
	top := simple(t)
	dir, _ := volume(t, top, "volume", 1<<30, 64*mib)
	for _, nested := range []string{"/a", "/a/b", "/a/b/c", "/d"} {
		mounttest.Run(t, "btrfs", "subvolume", "create", dir+nested)
	}
	for _, nested := range []string{"/a/b/c", "/a/b", "/a", ""} {
		mounttest.Run(t, "btrfs", "property", "set", dir+nested, "ro", "true")
	}
	must(t, DestroyTree(t.Context(), top, "volume", pass))
}

// TestDestroyTreeWithFlags: what is nested, and the directories that it lies in, can be immutable or take names only.
func TestDestroyTreeWithFlags(t *testing.T) {
	top := simple(t)
	dir, _ := volume(t, top, "volume", 1<<30, 64*mib)
	for _, nested := range []string{"/a", "/b", "/d/c", "/d/e/f"} {
		must(t, os.MkdirAll(filepath.Dir(dir+nested), 0o700))
		mounttest.Run(t, "btrfs", "subvolume", "create", dir+nested)
	}
	mounttest.Run(t, "chattr", "+a", dir+"/b")
	mounttest.Run(t, "btrfs", "property", "set", dir+"/b", "ro", "true")
	for _, nested := range []string{"/a", "/d/e/f", "/d/e", "/d"} {
		mounttest.Run(t, "chattr", "+i", dir+nested)
	}
	must(t, DestroyTree(t.Context(), top, "volume", pass))
}

// TestRemoveQgroup: what was moved out of a volume counts to its group; what was destroyed does not, before any commit.
func TestRemoveQgroup(t *testing.T) {
	top := simple(t)
	dir, group := volume(t, top, "volume", 1<<30, 64*mib)
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/nested")
	must(t, fill(dir+"/nested/file", mib))
	must(t, os.Rename(dir+"/nested", top.Name()+"/moved"))
	must(t, DestroySubvolume(top, "volume"))
	wants(t, RemoveQgroup(top, group), syscall.EBUSY)
	if got := limitOf(t, top, group); got != 64*mib {
		t.Errorf("the limit is %d after a removal that failed", got)
	}
	must(t, DestroySubvolume(top, "moved"))
	must(t, RemoveQgroup(top, group))
	wants(t, RemoveQgroup(top, group), fs.ErrNotExist)
}

// TestDestroyTreeInSlices: each slice comes nearer to the end.
func TestDestroyTreeInSlices(t *testing.T) {
	top := simple(t)
	dir, _ := volume(t, top, "volume", 1<<30, 64*mib)
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/a")
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/b")
	for range 2 {
		calls := 0
		wants(t, DestroyTree(t.Context(), top, "volume", func(context.Context) error {
			if calls++; calls == 2 {
				return syscall.EINTR
			}
			return nil
		}), syscall.EINTR)
	}
	if left, err := nested(top, subvolume(t, dir)); err != nil || len(left) != 0 {
		t.Errorf("nested ones are left: %v, %v", left, err)
	}
	must(t, DestroyTree(t.Context(), top, "volume", pass))
}

func TestDestroyTree(t *testing.T) {
	top := simple(t, "commit=1") // the kernel's cleaner runs after a commit
	dir, group := volume(t, top, "volume", 1, 16*mib)
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/a")
	must(t, os.MkdirAll(dir+"/a/x/y", 0o755))
	mounttest.Run(t, "btrfs", "subvolume", "create", dir+"/a/x/y/b")
	mounttest.Run(t, "btrfs", "subvolume", "snapshot", "-r", dir+"/a/x/y/b", dir+"/a/x/read-only")
	full(t, fill(dir+"/file", 32*mib))
	ids := []uint64{}
	for _, path := range []string{"", "/a", "/a/x/y/b", "/a/x/read-only"} {
		ids = append(ids, subvolume(t, dir+path))
	}
	nested, err := nested(top, ids[0])
	if err != nil || len(nested) != 3 || nested[2] != ids[1] {
		t.Errorf("nested %v, %v; want the three of %v, the one on top last", nested, err, ids)
	}
	wants(t, DestroySubvolume(top, "volume"), syscall.ENOTEMPTY)
	wants(t, RemoveQgroup(top, NewQgroupID(0, ids[0])), syscall.EBUSY)
	paused := 0
	must(t, DestroyTree(t.Context(), top, "volume", func(context.Context) error { paused++; return nil }))
	if paused != 4 {
		t.Errorf("paused %d times, want once for each", paused)
	}
	_, err = os.Lstat(dir)
	wants(t, err, fs.ErrNotExist)
	must(t, RemoveQgroup(top, group))
	mounttest.Run(t, "btrfs", append([]string{"subvolume", "sync", top.Name()}, numbers(ids)...)...)
}

func numbers(ids []uint64) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatUint(id, 10)
	}
	return texts
}

func subvolume(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close() // an open one would never be gone
	id, err := SubvolumeID(f)
	must(t, err)
	return id
}

// TestDestroyTreeStops checks that pause can end it, and that it can be done again.
func TestDestroyTreeStops(t *testing.T) {
	top := disk(t) // quota is off
	must(t, nest(top.Name(), "volume", 0))
	mounttest.Run(t, "btrfs", "subvolume", "create", top.Name()+"/volume/nested")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	wants(t, DestroyTree(ctx, top, "volume", pass), context.Canceled)
	if is, err := IsSubvolume(open(t, top.Name()+"/volume/nested")); err != nil || !is {
		t.Errorf("nested is a subvolume: %v, %v", is, err)
	}
	must(t, DestroyTree(t.Context(), top, "volume", pass))
	wants(t, DestroyTree(t.Context(), top, "volume", pass), fs.ErrNotExist)
}

func TestNames(t *testing.T) {
	top := disk(t)
	must(t, os.Mkdir(top.Name()+"/dir", 0o755))
	must(t, os.Symlink("dir", top.Name()+"/link"))
	wants(t, nest(top.Name(), "dir", 0), fs.ErrExist)
	wants(t, DestroySubvolume(top, "dir"), syscall.EINVAL)
	wants(t, DestroySubvolume(top, "missing"), fs.ErrNotExist)
	wants(t, DestroyTree(t.Context(), top, "dir", pass), syscall.EINVAL)
	wants(t, DestroyTree(t.Context(), top, "link", pass), syscall.ELOOP)
	for _, name := range []string{"", ".", "..", "a/b", "a\x00b"} {
		wants(t, CreateSubvolume(top, name, 1), fs.ErrInvalid)
		wants(t, DestroySubvolume(top, name), fs.ErrInvalid)
	}
	wants(t, CreateSubvolume(top, strings.Repeat("x", 256), 1), syscall.ENAMETOOLONG)
	must(t, nest(top.Name(), strings.Repeat("x", 255), 0))
	must(t, nest(top.Name(), "bytes \n\xff", 0))
	for _, dir := range []string{top.Name() + "/dir", t.TempDir()} {
		if id, err := SubvolumeID(open(t, dir)); err != nil || id != 0 {
			t.Errorf("%s is a subvolume: %v, %v", dir, id, err)
		}
	}
}

func TestQuotaMode(t *testing.T) {
	mode := func(top *os.File, want Mode) {
		t.Helper()
		if got, err := QuotaMode(top); err != nil || got != want {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	}
	top := disk(t)
	mode(top, Off)
	_, err := Qgroups(top, 0, 9)
	wants(t, err, fs.ErrNotExist)
	_, err = QgroupUsage(top, NewQgroupID(1, 1))
	wants(t, err, fs.ErrNotExist)
	wants(t, CreateQgroup(top, NewQgroupID(1, 1)), syscall.ENOTCONN)
	must(t, EnableSimpleQuota(top))
	must(t, EnableSimpleQuota(top))
	mode(top, Simple)

	mounttest.Run(t, "btrfs", "quota", "disable", top.Name())
	mode(top, Off)
	mounttest.Run(t, "btrfs", "quota", "enable", top.Name())
	mode(top, Full)
	wants(t, EnableSimpleQuota(top), syscall.EBUSY)

	elsewhere := open(t, t.TempDir())
	_, err = QuotaMode(elsewhere)
	wants(t, err, syscall.ENOTTY)
}

// TestDurable takes what is on the disk at one moment, as a power cut would leave it.
func TestDurable(t *testing.T) {
	top := simple(t)
	volume(t, top, "volume", 1, 16*mib) // durable, with its limit, when CreateSubvolume returns
	must(t, SetQgroupLimit(top, NewQgroupID(1, 1), 24*mib))
	commit(t, top)
	must(t, SetQgroupLimit(top, NewQgroupID(1, 1), 32*mib)) // not yet
	before := filepath.Join(filepath.Dir(top.Name()), "before")
	mounttest.Run(t, "cp", "--sparse=always", filepath.Join(filepath.Dir(top.Name()), "001", "image"), before)
	t.Cleanup(func() { must(t, os.Remove(before)) })
	must(t, top.Close())
	mounttest.Run(t, "umount", top.Name())
	mounttest.Loop(t, before, top.Name())
	after := open(t, top.Name())
	defer after.Close()
	got, err := QgroupUsage(after, NewQgroupID(1, 1))
	if err != nil || got.Limit != 24*mib {
		t.Errorf("%+v, %v", got, err)
	}
	id := subvolume(t, after.Name()+"/volume")
	groups, err := Groups(after, NewQgroupID(0, id))
	if err != nil || !slices.Equal(groups, []QgroupID{NewQgroupID(1, 1)}) {
		t.Errorf("groups %v, %v", groups, err)
	}
	full(t, fill(after.Name()+"/volume/file", 32*mib))
}

func BenchmarkUsage(b *testing.B) {
	top := simple(b)
	dir, group := volume(b, top, "volume", 1, 512*mib)
	for i := range 1000 {
		must(b, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), []byte("x"), 0o600))
	}
	for b.Loop() {
		_, err := QgroupUsage(top, group)
		must(b, err)
	}
}

func BenchmarkCreate(b *testing.B) {
	top := simple(b)
	n := uint64(0)
	for b.Loop() {
		n++
		volume(b, top, fmt.Sprint(n), n, mib)
	}
}
