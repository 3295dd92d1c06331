//go:build !vm

package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestQuotaSwitchedOff: btrfs forgets all limits then. When quota is on again, no volume counts to anything, until an
// admin says so.
func TestQuotaSwitchedOff(t *testing.T) {
	root := btrfsDisk(t)
	n := startAt(t, root, required)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
	mounttest.Run(t, "btrfs", "quota", "disable", root)
	n = startAt(t, root, required)
	must(t, openPool(t.Context(), n))
	if s := n.status(); !s.Served() || !s.EnforcementLost || !strings.Contains(s.EnforcementReason, "quota is off") {
		t.Errorf("quota is off: %+v", s)
	}
	_, err := n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, ledger.ErrClosed, "quota is required")
	_, err = n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	wants(t, err, volume.ErrNotEnforced, "pvc-1")
	wants(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}), volume.ErrUnsupported, "is off")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)), n.Unpublish(t.Context(), "pvc-1", target))
	if err := write(n.path("pvc-1", "a"), 2); err != nil {
		t.Errorf("nothing keeps it to its size: %v", err)
	}

	top, err := os.Open(root)
	must(t, err)
	defer func() { _ = top.Close() }()
	must(t, btrfs.EnableSimpleQuota(top)) // older btrfs-progs cannot
	n = startAt(t, root, required)
	must(t, openPool(t.Context(), n))
	if s := n.status(); !s.Served() || s.EnforcementLost || s.Enforcement != string(quota.Strict) || s.Uncounted != 1 {
		t.Errorf("quota is on again: %+v", s)
	}
	must(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}))
	n.consistent(t, "enforced")
	if err := write(n.path("pvc-1", "b"), 2); !full(err) {
		t.Errorf("1 MiB takes 2 more: %v", err)
	}
	must(t, n.Delete(t.Context(), "pvc-1"))
	n.purgeAll(t)
	n.unlimited(t)
}

// TestOneCommitEach counts what a create and a delete cost on btrfs, where a commit is most of it. The kernel's own
// commits come every 30 s.
func TestOneCommitEach(t *testing.T) {
	root := btrfsDisk(t)
	n := startAt(t, root, required)
	mustCreate(t, n, "pvc-0") // takes the pool into use
	const volumes = 20
	before := commits(t, root)
	for i := range volumes {
		mustCreate(t, n, fmt.Sprintf("pvc-%d", i+1))
	}
	made := commits(t, root)
	for i := range volumes {
		must(t, n.Delete(t.Context(), fmt.Sprintf("pvc-%d", i+1)))
	}
	deleted := commits(t, root)
	for what, n := range map[string]int{"made": made - before, "deleted": deleted - made} {
		if n < volumes || n >= 2*volumes {
			t.Errorf("%d volumes took %d commits to be %s, want one each", volumes, n, what)
		}
	}
}

// commits is how often a filesystem has committed.
func commits(t *testing.T, root string) (n int) {
	t.Helper()
	id, err := exec.Command("findmnt", "-no", "UUID", root).Output()
	must(t, err)
	text, err := os.ReadFile("/sys/fs/btrfs/" + strings.TrimSpace(string(id)) + "/commit_stats") // Linux 6.1
	must(t, err)
	_, err = fmt.Sscanf(string(text), "commits %d", &n)
	must(t, err)
	return n
}

// TestBtrfsPromisesNoByteTwice fills a pool with claims that nobody writes to.
func TestBtrfsPromisesNoByteTwice(t *testing.T) {
	n := startAt(t, btrfsDisk(t), required)
	must(t, openPool(t.Context(), n))
	room, _ := n.set.Capacity("local")
	made := int64(0)
	for i := range 100 {
		s := spec(fmt.Sprintf("pvc-%d", i))
		s.Bytes = 200 * mebibyte
		_, err := n.Create(t.Context(), s)
		if errors.Is(err, ledger.ErrNoSpace) {
			break
		}
		must(t, err)
		made += s.Bytes
	}
	if room < 1<<30 || made > room || made < room-300*mebibyte {
		t.Errorf("%d bytes were promised of %d", made, room)
	}
}

func BenchmarkCreateDeleteBtrfs(b *testing.B) {
	benchmarkCreateDelete(b, startAt(b, btrfsDisk(b), required))
}
