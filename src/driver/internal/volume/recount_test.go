package volume_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// countsOf is how the pool's filesystem counts.
func (n *node) countsOf(t *testing.T) poolfs.Counts {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	quotas, _ := poolfs.QuotasOf(disk)
	counts, err := quotas.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// TestLostCountIsRecounted: while full qgroups do not count right, nothing that is used is taken for the volumes' own, so that no byte is
// promised twice; everybody is told, and a recount is started, but not at once again.
func TestLostCountIsRecounted(t *testing.T) {
	const mi = 1 << 20
	disk := quotaDisk(t, poolfs.QuotaFull)
	disk.SetSpace(poolPath, poolfs.Space{Size: 100 * mi, Used: 40 * mi, Free: 60 * mi})
	n := warm(t, disk)
	s := spec("pvc-1")
	s.Bytes = 20 * mi
	if _, err := n.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	pool := n.open(t)
	if err := errors.Join(pool.WriteFile("pvc-1/data", make([]byte, 10*mi), 0o644), pool.Sync("pvc-1"), pool.Close()); err != nil {
		t.Fatal(err)
	}
	is := func(about string, wrong bool, availableMi int64, counts poolfs.Counts) {
		t.Helper()
		s := n.check(t)
		if s.CountsWrong != wrong || s.Available != availableMi*mi || strings.Contains(s.Message, "nothing keeps volumes to their size") != wrong {
			t.Errorf("%s: wrong %v, %d MiB available, says %q; want %v, %d", about, s.CountsWrong, s.Available/mi, s.Message, wrong, availableMi)
		}
		if got := n.countsOf(t); got != counts {
			t.Errorf("%s: the filesystem's counts are %s, want %s", about, got, counts)
		}
	}
	is("at first", false, 50, poolfs.CountsRight)
	n.changed()
	disk.LoseCount(poolPath)
	is("lost", true, 40, poolfs.CountsAnew)
	if !n.changed() {
		t.Error("nobody is told that the pool says something else")
	}
	s = spec("pvc-2")
	s.Bytes = 45 * mi
	_, err := n.Create(t.Context(), s)
	wants(t, err, volume.ErrNoSpace)
	is("being counted", true, 40, poolfs.CountsAnew)
	if !n.events.tell("QuotaInconsistent", "btrfs quota rescan") || n.events.tell("QuotaConsistent", "") {
		t.Errorf("events %v", n.events.told)
	}
	disk.FinishRecount(poolPath)
	is("counted", false, 50, poolfs.CountsRight)
	if !n.events.tell("QuotaConsistent", "local") {
		t.Errorf("events %v", n.events.told)
	}
	disk.LoseCount(poolPath)
	is("lost again too soon", true, 40, poolfs.CountsWrong)
	n.clock.advance(10 * time.Minute)
	is("lost again", true, 40, poolfs.CountsAnew)
	disk.FinishRecount(poolPath)
	is("counted again", false, 50, poolfs.CountsRight)
	if told := strings.Count(strings.Join(n.events.told, "\n"), "QuotaInconsistent: "); told != 2 {
		t.Errorf("lost twice, told %d times: %v", told, n.events.told)
	}
}

// TestRecountThatFailsIsTriedAgain, and after a restart the pool knows at once that the counts are wrong.
func TestRecountThatFailsIsTriedAgain(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaFull)
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	disk.LoseCount(poolPath)
	disk.SetReadOnly(poolPath, true)
	if s := n.check(t); !s.CountsWrong || n.countsOf(t) != poolfs.CountsWrong {
		t.Errorf("%+v", s)
	}
	disk.SetReadOnly(poolPath, false)
	n.check(t)
	if got := n.countsOf(t); got != poolfs.CountsWrong {
		t.Errorf("tried again after two minutes: %s", got)
	}
	n.clock.advance(10 * time.Minute)
	n.check(t)
	if got := n.countsOf(t); got != poolfs.CountsAnew {
		t.Errorf("not tried again: %s", got)
	}
	if s := warm(t, disk).set.Status()[0]; !s.CountsWrong || !s.Present {
		t.Errorf("after a restart: %+v", s)
	}
}
