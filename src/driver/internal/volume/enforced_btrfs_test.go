//go:build !vm

package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// checkNested makes a subvolume inside a volume: it counts to the volume, and no limit that somebody clears stays so.
func checkNested(t *testing.T, m *volume.Locked, root, dir string, v volume.Volume) {
	t.Helper()
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = top.Close() }()
	if _, err := btrfs.CreateSubvolume(top, "nested", 0); err != nil {
		t.Fatal(err)
	}
	if err := write(t, filepath.Join(dir, "nested", "c"), 40); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("a nested subvolume escapes: %v", err)
	}
	checkHeld(t, m, root, dir, v)
}

// checkHeld clears a volume's limit: publishing sets it again. Its stats are its own.
func checkHeld(t *testing.T, m *volume.Locked, root, _ string, v volume.Volume) {
	t.Helper()
	pool, err := os.Open(filepath.Join(root, "pool"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	if err := btrfs.SetQgroupLimit(pool, btrfs.NewQgroupID(1, uint64(v.ProjectID)), 0); err != nil {
		t.Fatal(err)
	}
	if err := m.Publish(t.Context(), volume.PublishRequest{ID: v.ID, Target: target}); err != nil {
		t.Fatal(err)
	}
	if got := accounts(t, root)[v.ProjectID]; got.Limit.Bytes != 96<<20 {
		t.Errorf("after a publish the limit is %d", got.Limit.Bytes)
	}
	run(t, "btrfs", "filesystem", "sync", root) // brings the counts up to date
	stats, _, err := m.Stats(t.Context(), v.ID, target)
	if err != nil || !stats.Own || stats.Bytes != 96<<20 || stats.BytesUsed < 79<<20 || stats.BytesUsed+stats.BytesAvailable != stats.Bytes || stats.Inodes != 0 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	if err := m.Unpublish(t.Context(), v.ID, target); err != nil {
		t.Fatal(err)
	}
}

// TestQuotaSwitchedOffOnRealBtrfs: btrfs forgets all limits then. When quota is on again, recovery makes them and ties the volumes to
// them, whose old data counts as nothing.
func TestQuotaSwitchedOffOnRealBtrfs(t *testing.T) {
	root := btrfsDisk(t)
	m, set := onDisk(t, root, required)
	v := create64Mi(t, m, "pvc-1")
	look := func() pool.Status { t.Helper(); return checked(t, set) }
	run(t, "btrfs", "quota", "disable", root)
	if status := look(); !status.Present || !status.EnforcementLost {
		t.Errorf("quota is off: %+v", status)
	}
	if _, err := m.Create(t.Context(), spec("pvc-2")); !errors.Is(err, volume.ErrPoolNotHere) {
		t.Errorf("a volume without quota where it is required: %v", err)
	}
	dir := filepath.Join(root, "pool", "csi", v.ID)
	if err := write(t, filepath.Join(dir, "a"), 80); err != nil {
		t.Errorf("nothing keeps it to its size: %v", err)
	}
	top, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = top.Close() }()
	if err := btrfs.EnableSimpleQuota(top); err != nil { // older btrfs-progs cannot
		t.Fatal(err)
	}
	if status := look(); !status.Present || status.EnforcementLost || status.Enforcement != "strict" || status.Refused > 0 {
		t.Errorf("quota is on again: %+v", status)
	}
	if got := accounts(t, root)[v.ProjectID]; got.Limit.Bytes != 64<<20 {
		t.Errorf("the limit is %d", got.Limit.Bytes)
	}
	if err := write(t, filepath.Join(dir, "b"), 65); !full(err) {
		t.Errorf("64 MiB take 65 more: %v", err)
	}
}

// TestOneCommitEach counts what a create and a delete cost on btrfs, where a commit is most of it. The kernel's own commits come every 30 s.
func TestOneCommitEach(t *testing.T) {
	root := btrfsDisk(t)
	m, _ := onDisk(t, root, required)
	if _, err := m.Create(t.Context(), spec("pvc-0")); err != nil { // takes the pool into use
		t.Fatal(err)
	}
	const volumes = 20
	before := commits(t, root)
	for i := range volumes {
		if _, err := m.Create(t.Context(), spec(fmt.Sprintf("pvc-%d", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	made := commits(t, root)
	for i := range volumes {
		if err := m.Delete(t.Context(), fmt.Sprintf("pvc-%d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	deleted := commits(t, root)
	for what, n := range map[string]int{"made": made - before, "deleted": deleted - made} {
		if n < volumes || n >= 2*volumes {
			t.Errorf("%d volumes took %d commits to be %s, want one each", volumes, n, what)
		}
	}
}

// commits is how often a filesystem has committed.
func commits(t *testing.T, root string) int {
	t.Helper()
	id, err := exec.Command("findmnt", "-no", "UUID", root).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/sys/fs/btrfs/" + strings.TrimSpace(string(id)) + "/commit_stats") // Linux 6.1
	var n int
	if _, scanErr := fmt.Sscanf(string(text), "commits %d", &n); err != nil || scanErr != nil {
		t.Fatalf("%v, %v: %s", err, scanErr, text)
	}
	return n
}

// TestBtrfsPromisesNoByteTwice fills a pool with claims that nobody writes to.
func TestBtrfsPromisesNoByteTwice(t *testing.T) {
	root := btrfsDisk(t)
	m, set := onDisk(t, root, required)
	room, _, err := set.Capacity(t.Context(), "local")
	if err != nil || room < 1<<30 {
		t.Fatalf("capacity %d, %v", room, err)
	}
	made := int64(0)
	for i := range 100 {
		s := spec(fmt.Sprintf("pvc-%d", i))
		s.Bytes = 200 << 20
		_, err := m.Create(t.Context(), s)
		if errors.Is(err, volume.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		made += s.Bytes
	}
	if made > room || made < room-300<<20 {
		t.Errorf("%d bytes were promised of %d", made, room)
	}
}

func BenchmarkCreateDeleteBtrfs(b *testing.B) {
	m, _ := onDisk(b, btrfsDisk(b), required)
	for b.Loop() {
		if _, err := m.Create(b.Context(), spec("pvc-1")); err != nil {
			b.Fatal(err)
		}
		if err := m.Delete(b.Context(), "pvc-1"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateBtrfs(b *testing.B) {
	for _, quota := range []poolspec.Quota{poolspec.QuotaRequired, poolspec.QuotaNone} {
		b.Run(string(quota), func(b *testing.B) {
			m, _ := onDisk(b, btrfsDisk(b), func(p *poolspec.Pool) { p.Quota = quota })
			n := 0
			for b.Loop() {
				n++
				s := spec(fmt.Sprintf("pvc-%d", n))
				s.Bytes = 256 << 10
				if _, err := m.Create(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func run(tb testing.TB, name string, arguments ...string) {
	tb.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
}

// btrfsDisk mounts a new btrfs of 2 GiB.
func btrfsDisk(tb testing.TB) (root string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test must run as root: it mounts a loop device")
	}
	image, root := filepath.Join(tb.TempDir(), "image"), tb.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 2<<30)); err != nil {
		tb.Fatal(err)
	}
	run(tb, "mkfs.btrfs", "-q", image)
	run(tb, "mount", "-o", "loop", image, root)
	tb.Cleanup(func() { run(tb, "umount", root) })
	return root
}

// enforcingDisks are those that an ordinary kernel has.
func enforcingDisks() map[string]enforcingDisk {
	return map[string]enforcingDisk{
		"btrfs simple quota": {mount: btrfsDisk, enforcement: volume.Strict, more: checkNested},
		"btrfs qgroups": {mount: func(tb testing.TB) string {
			tb.Helper()
			root := btrfsDisk(tb)
			run(tb, "btrfs", "quota", "enable", root)
			return root
		}, enforcement: volume.Cooperative, more: checkHeld},
	}
}
