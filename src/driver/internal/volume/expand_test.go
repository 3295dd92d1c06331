package volume_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// expand is one call, and how large the volume is then.
type expand struct {
	about               string
	bytes, limit, wants int64
	err                 error
}

func TestExpand(t *testing.T) {
	const mi = mebibyte
	d := newDisk()
	d.AddDir(poolPath)
	d.SetSpace(poolPath, disk.Space{Size: 100 * mi, Used: 10 * mi, Free: 90 * mi})
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	for _, step := range []expand{
		{"larger", 5*mi + 1, 0, 5*mi + volume.Block, nil},
		{"the same again", 5*mi + 1, 0, 5*mi + volume.Block, nil},
		{"smaller: as it is", 3 * mi, 0, 5*mi + volume.Block, nil},
		{"up to the limit", 6 * mi, 6 * mi, 6 * mi, nil},
		{"past the limit", 7*mi - 1, 7*mi - 1, 6 * mi, volume.ErrOutOfRange},
		{"it is past the limit already", 1 * mi, 2 * mi, 6 * mi, volume.ErrOutOfRange},
		{"past all room", 1000 * mi, 0, 6 * mi, ledger.ErrNoSpace},
		{"nothing", 0, 0, 6 * mi, volume.ErrInvalid},
		{"no end", 1<<63 - 1, 0, 6 * mi, volume.ErrOutOfRange},
		{"one block", 6*mi + 1, 0, 6*mi + volume.Block, nil},
	} {
		v, err := n.Expand(t.Context(), "pvc-1", step.bytes, step.limit)
		if step.err != nil {
			wants(t, err, step.err)
		} else if err != nil || v.Bytes != step.wants {
			t.Errorf("%s: %d, %v; want %d", step.about, v.Bytes, err, step.wants)
		}
		if r := n.records(t)["pvc-1"]; r.Bytes != step.wants {
			t.Errorf("%s: the record says %d, want %d", step.about, r.Bytes, step.wants)
		}
		n.consistent(t, step.about)
	}
	_, err := n.Expand(t.Context(), "pvc-9", mi, 0)
	wants(t, err, store.ErrNotFound)
	_, err = n.Expand(t.Context(), "../x", mi, 0)
	wants(t, err, nodeapi.ErrInvalidID)
}

// TestExpandTakesRoomFromOthers where the same bytes are promised once.
func TestExpandTakesRoomFromOthers(t *testing.T) {
	const mi = mebibyte
	d := newDisk()
	d.AddDir(poolPath)
	d.SetSpace(poolPath, disk.Space{Size: 10 * mi, Free: 10 * mi})
	once := retained("local", poolPath)
	once.Overcommit = 1
	n := warm(t, d, withPools(once))
	mustCreate(t, n, "pvc-1")
	mustCreate(t, n, "pvc-2")
	_, err := n.Expand(t.Context(), "pvc-1", 8*mi, 0)
	must(t, err)
	_, err = n.Expand(t.Context(), "pvc-2", 3*mi, 0)
	wants(t, err, ledger.ErrNoSpace, "room for 1Mi")
	if v, err := n.Expand(t.Context(), "pvc-2", 2*mi, 0); err != nil || v.Bytes != 2*mi {
		t.Errorf("to what is left: %d, %v", v.Bytes, err)
	}
	n.consistent(t, "all promised")
}
