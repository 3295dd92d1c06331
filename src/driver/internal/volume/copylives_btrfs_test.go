//go:build !vm

package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// letters are what a volume or snapshot has to have: a mebibyte of a letter in each file.
type letters map[string]byte

// model is what a story knows of a volume or a snapshot: its size, which of a snapshot is what a restore needs at
// least, and its content.
type model struct {
	bytes   int64
	content letters
}

// copies is a random story of volumes, snapshots and clones on a real filesystem.
type copies struct {
	*testing.T
	rng                *rand.Rand
	root               string
	options            []option
	node               *node
	volumes, snapshots map[string]model
	trash              map[string]model // deleted volumes, by entry
	story              []string
}

const (
	copiesDisk, copiesReserve = 768 * mebibyte, 256 * mebibyte
	// spare is what of a volume is not written to, in MiB: btrfs keeps what is replaced until the next commit.
	spare = 8
)

// boot starts a driver on what is on the disk, at the time that it is.
func (c *copies) boot() {
	reserving := func(s *setup) {
		s.specs[0].Reserve, s.specs[0].Overcommit = poolspec.Reserve{Bytes: copiesReserve}, 1
		if c.node != nil {
			s.clock = c.node.clock
		}
	}
	c.node = startAt(c, c.root, append(c.options, reserving)...)
	if err := openPool(c.Context(), c.node); err != nil {
		c.Fatalf("the pool does not come back: %v\n%s", err, c.story)
	}
}

// step does one random thing that can be done now. There may be no room for it, and nothing else may be wrong.
func (c *copies) step() {
	operations := c.operations()
	var name, about string
	var run func() error
	for run == nil {
		name = pick(c.rng, slices.Sorted(maps.Keys(operations)))
		about, run = operations[name]()
	}
	err := run()
	c.story = append(c.story, fmt.Sprintf("%s %s: %v\n", name, about, err))
	if err != nil && !errors.Is(err, ledger.ErrNoSpace) {
		c.Errorf("%v\n%s", err, c.story)
	}
}

// check looks at what must be, whatever happened.
func (c *copies) check() {
	c.node.consistent(c, fmt.Sprint(c.story))
	all := c.node.records(c)
	if len(all) != len(c.volumes)+len(c.snapshots) {
		c.Errorf("records of %v\n%s", slices.Sorted(maps.Keys(all)), c.story)
	}
	promised := int64(0)
	for id, r := range all {
		promised += r.Limit().Bytes
		if held := pinnedIn(all, r.QuotaID); r.QuotaID != 0 && r.Held < held {
			c.Errorf("%s holds %d for copies that keep %d\n%s", id, r.Held, held, c.story)
		}
	}
	if promised > copiesDisk-copiesReserve {
		c.Errorf("%d bytes are promised\n%s", promised, c.story)
	}
}

// checkContent wants in each volume and snapshot what was written to it.
func (c *copies) checkContent() {
	for _, of := range []map[string]model{c.volumes, c.snapshots} {
		for id, is := range of {
			c.has(id, is.content)
		}
	}
}

// pinnedIn is what records keep charged to an ID.
func pinnedIn(all map[string]store.Record, id quota.ID) (bytes int64) {
	for _, r := range all {
		bytes = max(bytes, quota.Pinned(r.Pins, id))
	}
	return bytes
}

// has wants just these files.
func (c *copies) has(id string, want letters) {
	c.Helper()
	entries, err := os.ReadDir(c.node.path(id))
	if err != nil || len(entries) != len(want) {
		c.Errorf("%s has %d files, want %d: %v\n%s", id, len(entries), len(want), err, c.story)
	}
	for name, letter := range want {
		data, err := os.ReadFile(c.node.path(id, name))
		if err != nil || len(data) != mebibyte || bytes.Count(data, []byte{letter}) != len(data) {
			c.Errorf("%s/%s has %d bytes, not a mebibyte of %c: %v\n%s", id, name, len(data), letter, err, c.story)
		}
	}
}

// end deletes the snapshots, after which volumes hold no more than other volumes keep, and then all else.
func (c *copies) end() {
	for id := range c.snapshots {
		must(c, c.node.DeleteSnapshot(c.Context(), id))
	}
	clear(c.snapshots)
	c.node.purgeAll(c.T)
	all := c.node.records(c)
	for id := range c.volumes {
		c.node.released(c.T, id, pinnedIn(all, all[id].QuotaID)/mebibyte)
	}
	c.check()
	c.checkContent()
	for id := range c.volumes {
		must(c, c.node.Delete(c.Context(), id))
	}
	clear(c.volumes)
	c.node.purgeAll(c.T)
	c.check()
	c.node.unlimited(c.T)
	if s := c.node.status(); s.Promised != 0 {
		c.Errorf("%d bytes are promised to nobody", s.Promised)
	}
}

// TestRandomCopies does random things with volumes, snapshots and clones. Each has what was written to it, whatever
// becomes of what it was made of; what a pod writes within its volume's size is never refused; and nothing is left.
func TestRandomCopies(t *testing.T) {
	live(t, func(t *testing.T) string {
		t.Helper()
		return mounttest.Disk(t, "btrfs", copiesDisk, "commit=1")
	}, required)
}

// TestRandomCopiesByFile is that of copies that are made file by file, where the filesystem shares their data.
func TestRandomCopiesByFile(t *testing.T) {
	live(t, func(t *testing.T) string { t.Helper(); return memoryDisk(t, "xfs", copiesDisk) })
}

func live(t *testing.T, mount func(*testing.T) string, options ...option) {
	t.Helper()
	for seed := range seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := &copies{
				T: t, rng: rand.New(rand.NewPCG(seed, 0)), root: mount(t), options: options,
				volumes: map[string]model{}, snapshots: map[string]model{}, trash: map[string]model{},
			}
			c.boot()
			for steps := range 50 {
				c.step()
				c.check()
				if steps%8 == 7 { // it takes the most time
					c.checkContent()
				}
				if t.Failed() {
					return
				}
			}
			c.end()
		})
	}
}
