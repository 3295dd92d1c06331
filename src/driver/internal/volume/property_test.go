package volume_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// life is a random story of a pool: what was answered, and what may be because an operation was cut off.
type life struct {
	*testing.T
	rng  *rand.Rand
	disk *disktest.Disk
	node *node
	// sizes are those of the volumes that were answered, in bytes; a volume of unsure may be there or not.
	sizes  map[string]int64
	unsure map[string]bool
	story  []string
}

const (
	// The pool takes two of the largest volumes, so that of three some have to be refused.
	poolSize, poolReserve = 20 * mebibyte, 3 * mebibyte
)

// boot starts a driver on what is on the disk.
func (l *life) boot() {
	var err error
	reserving := retained("local", poolPath)
	reserving.Reserve, reserving.Overcommit = poolspec.Reserve{Bytes: poolReserve}, 1
	if l.node, err = tryStart(l.disk, withPools(reserving)); err == nil {
		err = openPool(context.Background(), l.node)
	}
	if err != nil {
		l.Fatalf("the pool does not come back: %v\n%s", err, l.story)
	}
}

// operations are what a step can be, each with what it does to what has to be.
func (l *life) operations() map[string]func(id string, size int64) (run func() error, answered func()) {
	ctx := context.Background()
	return map[string]func(id string, size int64) (func() error, func()){
		"create": func(id string, size int64) (func() error, func()) {
			made := int64(0)
			run := func() error {
				s := spec(id)
				s.Bytes = size
				v, err := l.node.Create(ctx, s)
				made = v.Bytes
				return err
			}
			return run, func() { l.sizes[id] = made; delete(l.unsure, id) }
		},
		"expand": func(id string, size int64) (func() error, func()) {
			is := int64(0)
			run := func() error {
				v, err := l.node.Expand(ctx, id, size, 0)
				is = v.Bytes
				return err
			}
			return run, func() {
				if is < size || is < l.sizes[id] {
					l.Errorf("expand %s to %d answered %d, it had %d\n%s", id, size, is, l.sizes[id], l.story)
				}
				l.sizes[id] = is
				delete(l.unsure, id)
			}
		},
		"delete": func(id string, _ int64) (func() error, func()) {
			return func() error { return l.node.Delete(ctx, id) }, func() { delete(l.sizes, id); delete(l.unsure, id) }
		},
		"undelete": func(id string, _ int64) (func() error, func()) {
			back := int64(0)
			run := func() error {
				entries := l.node.entries(l, id)
				if len(entries) == 0 {
					return store.ErrNotFound
				}
				r, err := l.node.Undelete(ctx, entries[len(entries)-1])
				back = r.Bytes
				return err
			}
			return run, func() { l.sizes[id] = back; delete(l.unsure, id) }
		},
		"purge": func(string, int64) (func() error, func()) {
			run := func() error {
				l.node.clock.advance(2 * time.Hour)
				return l.node.purge(ctx)
			}
			return run, func() {}
		},
	}
}

// step does one random thing, and lets the machine crash in the middle of it sometimes.
func (l *life) step() {
	operations := l.operations()
	name := pick(l.rng, slices.Sorted(maps.Keys(operations)))
	id := pick(l.rng, []string{"pvc-1", "pvc-2", "pvc-3"})
	size := (1 + l.rng.Int64N(8)) * mebibyte
	crash := l.rng.IntN(41)
	if crash > 0 && crash <= 20 {
		l.disk.CrashAt(crash)
	}
	run, answered := operations[name](id, size)
	err := run()
	l.story = append(l.story, fmt.Sprintf("%s %s %d: %v\n", name, id, size, err))
	crashed := l.disk.Crashed()
	switch {
	case err == nil && !(crashed && name == "purge"):
		answered()
	case crashed && name != "purge":
		l.unsure[id] = true
	}
	for _, refusal := range []error{
		nil, ledger.ErrNoSpace, store.ErrNotFound, store.ErrUndeletable, volume.ErrExists, disktest.ErrCrashed,
	} {
		if errors.Is(err, refusal) {
			err = nil
		}
	}
	if err != nil {
		l.Errorf("%v\n%s", err, l.story)
	}
	if !crashed {
		l.disk.CrashAt(1 << 30)
		return
	}
	seed := l.rng.Uint64()
	switch seed % 4 {
	case 0:
		l.disk = l.disk.Crash()
	case 1:
		l.disk = l.disk.CrashKeepingAll()
	default:
		l.disk = l.disk.CrashRandom(rand.New(rand.NewPCG(seed, 0)))
	}
	l.story = append(l.story, fmt.Sprintf("crash (%d)\n", seed))
	l.boot()
}

// check looks at what must be, whatever happened: promised is the sum of the records and no more than there is, and a
// record says no less than what was answered.
func (l *life) check() {
	l.node.consistent(l, fmt.Sprint(l.story))
	all := l.node.records(l)
	for id, size := range l.sizes {
		r, ok := all[id]
		if (!ok && !l.unsure[id]) || (ok && r.Bytes < size && !l.unsure[id]) {
			l.Errorf("volume %s of %d was answered, its record says %d (there: %v)\n%s", id, size, r.Bytes, ok, l.story)
		}
	}
	for id, r := range all {
		size, answered := l.sizes[id]
		switch {
		case !answered && !l.unsure[id]:
			l.Errorf("volume %s is back\n%s", id, l.story)
		case l.unsure[id] && answered && r.Bytes < size: // an expansion that was cut off
			l.Errorf("volume %s has shrunk from %d to %d\n%s", id, size, r.Bytes, l.story)
		}
	}
	for id := range l.unsure { // from now on it is sure: what recovery has found stays
		delete(l.sizes, id)
		if r, ok := all[id]; ok {
			l.sizes[id] = r.Bytes
		}
	}
	clear(l.unsure)
	if s := l.node.status(); s.Promised > poolSize-poolReserve {
		l.Errorf("%d bytes are promised of %d less a reserve of %d\n%s", s.Promised, poolSize, poolReserve, l.story)
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// TestRandomLives does random things: creates, expansions, deletes, purges and crashes.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(200) {
		l := &life{
			T: t, rng: rand.New(rand.NewPCG(seed, 0)), disk: newDisk(), sizes: map[string]int64{},
			unsure: map[string]bool{},
		}
		l.disk.AddDir(poolPath)
		l.disk.SetSpace(poolPath, disk.Space{Size: poolSize, Free: poolSize})
		l.boot()
		for range 25 {
			l.step()
			l.check()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
