package btrfs

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes subvolumes below a volume: many in its root, each of the first few with another inside, and one that holds
// one which is older than it is.
func tree(tb testing.TB, dir string, group QgroupID, many int) (ids []uint64) {
	tb.Helper()
	nestIn := func(in, name string) string {
		f, err := os.Open(in)
		must(tb, err)
		defer f.Close()
		must(tb, CreateSubvolume(f, name, group))
		return in + "/" + name
	}
	paths := []string{}
	for i := range many {
		path := nestIn(dir, fmt.Sprint("nested-", i))
		if paths = append(paths, path); i%100 == 0 {
			paths = append(paths, nestIn(path, "inside"))
		}
	}
	young := nestIn(dir, "young")
	must(tb, os.Rename(paths[1], young+"/old"))
	paths[1] = young + "/old"
	for _, path := range append(paths, young) {
		f, err := os.Open(path)
		must(tb, err)
		id, err := SubvolumeID(f)
		must(tb, err)
		must(tb, f.Close())
		ids = append(ids, id)
	}
	return ids
}

// TestRejoinStrays among more subvolumes than one answer of the kernel holds, and nobody else's.
func TestRejoinStrays(t *testing.T) {
	top := simple(t)
	dir, group := volume(t, top, "volume", 1, 512*mib)
	other, others := volume(t, top, "other", 2, 512*mib)
	ids, theirs := tree(t, dir, group, 250), tree(t, other, others, 5)
	if below, err := nested(top, subvolume(t, dir)); err != nil || len(below) != len(ids) {
		t.Errorf("%d nested, %v; want %d", len(below), err, len(ids))
	}
	strays := []uint64{ids[0], ids[1], ids[100], ids[len(ids)-1]}
	slices.Sort(strays)
	left, both := NewQgroupID(0, strays[0]), NewQgroupID(0, strays[1])
	must(t, UnassignQgroup(top, left, group))
	must(t, AssignQgroup(top, both, others))
	for _, id := range strays[2:] {
		must(t, UnassignQgroup(top, NewQgroupID(0, id), group))
		must(t, AssignQgroup(top, NewQgroupID(0, id), others))
	}
	must(t, UnassignQgroup(top, NewQgroupID(0, theirs[0]), others)) // not this volume's business
	if found, err := straysOf(top, ids, group); err != nil ||
		!slices.Equal(slices.Sorted(slices.Values(found)), strays) {
		t.Errorf("strays %v, %v; want %v", found, err, strays)
	}
	must(t, Rejoin(top, subvolume(t, dir), group))
	for _, id := range ids {
		if groups, err := Groups(top, NewQgroupID(0, id)); err != nil || !slices.Equal(groups, []QgroupID{group}) {
			t.Errorf("subvolume %d is in %v, %v", id, groups, err)
		}
	}
	if groups, err := Groups(top, NewQgroupID(0, theirs[0])); err != nil || len(groups) > 0 {
		t.Errorf("another volume's is in %v, %v", groups, err)
	}
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var use unix.Rusage
	must(tb, unix.Getrusage(unix.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkRejoin says how long a look at 40,000 nested subvolumes takes, none of which is a stray. The budget is 100
// ms.
func BenchmarkRejoin(b *testing.B) {
	top := simple(b)
	dir, group := volume(b, top, "volume", 1, 4<<30)
	const many = 40_000
	tree(b, dir, group, many)
	f := open(b, dir)
	id, err := SubvolumeID(f)
	must(b, err)
	before, looks := processorTime(b), 0
	for b.Loop() {
		must(b, Rejoin(top, id, group))
		looks++
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(looks), "cpu-ms/op")
}
