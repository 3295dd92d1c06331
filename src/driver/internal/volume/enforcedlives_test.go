package volume_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestEnforcedLives does random things on real filesystems, and lets every call fail from some step on sometimes, as a
// crash does: never is more promised than there is, and promises and limits are those of the records.
func TestEnforcedLives(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, _ enforcedDisk, root string) {
		l := realLife{root: root, rng: rand.New(rand.NewPCG(1, 2))}
		l.boot(t, disk.NewHost("/"))
		for range 120 {
			l.step(t)
			l.check(t)
		}
		for _, id := range []string{"pvc-0", "pvc-1", "pvc-2"} {
			must(t, l.node.Delete(t.Context(), id))
		}
		l.node.purgeAll(t)
		l.node.unlimited(t)
	})
}

type realLife struct {
	root  string
	rng   *rand.Rand
	node  *node
	story []string
}

const lifeReserve = 32 * mebibyte

// boot opens the pool with a host.
func (l *realLife) boot(t *testing.T, host disk.Host) {
	t.Helper()
	reserving := func(s *setup) { s.specs[0].Reserve = poolspec.Reserve{Bytes: lifeReserve} }
	l.node = startAt(t, l.root, required, reserving, withHost(host))
	must(t, openPool(t.Context(), l.node))
}

// step does one random thing, and crashes in the middle of it one time in three.
func (l *realLife) step(t *testing.T) {
	t.Helper()
	crashes := l.rng.IntN(3) == 0
	if crashes {
		probe := disktest.NewFaulty(disk.NewHost("/"), 0, nil)
		l.boot(t, probe)
		l.boot(t, disktest.NewFaulty(disk.NewHost("/"), probe.Steps()+1+l.rng.IntN(16), nil))
	}
	id, size := fmt.Sprintf("pvc-%d", l.rng.IntN(3)), (1+l.rng.Int64N(1000))*mebibyte
	var what string
	var err error
	switch l.rng.IntN(4) {
	case 0, 1:
		s := spec(id)
		s.Bytes, what = size, "create"
		_, err = l.node.Create(t.Context(), s)
	case 2:
		what = "expand"
		_, err = l.node.Expand(t.Context(), id, size, 0)
	default:
		what, err = "delete", l.node.Delete(t.Context(), id)
	}
	l.story = append(l.story, fmt.Sprintf("%s %s %d (crashes: %v): %v\n", what, id, size, crashes, err))
	for _, refusal := range []error{ledger.ErrNoSpace, store.ErrNotFound, volume.ErrExists} {
		if crashes || errors.Is(err, refusal) {
			err = nil
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, l.story)
	}
	if crashes {
		l.node = settled(t, l.root)
		l.boot(t, disk.NewHost("/"))
	}
}

func (l *realLife) check(t *testing.T) {
	t.Helper()
	l.node.consistent(t, "random")
	var space disk.Space
	must(t, l.node.set.Use(t.Context(), "local", func(o *pool.Open) (err error) {
		space, err = o.Disk.Space()
		return err
	}))
	if s := l.node.status(); s.Promised > space.Size-lifeReserve {
		t.Errorf("%d bytes are promised of %d", s.Promised, space.Size)
	}
	if t.Failed() {
		t.Fatalf("the story:\n%s", l.story)
	}
}
