// Package growth decides for the whole cluster whether a volume may grow, before its PersistentVolume changes: once
// that has grown, only the node can refuse, and the claim has to wait there until room comes.
package growth

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// Volume is what the cluster says about a volume that is to grow.
type Volume struct {
	Handle string
	Pool   string // "" where its PersistentVolume and the configuration leave that open
	Node   string // "" where it can be used on several
	Bytes  int64  // capacity of the PersistentVolume
	Claim  records.Claim
}

// Grant is a growth that was allowed: the PersistentVolume has that size, or will have it soon.
type Grant struct {
	Volume
	To int64 // bytes
}

// Cluster is what has to be known of Kubernetes. Every error is volume.ErrClusterUnknown.
type Cluster interface {
	// Find gives the volume of a handle; ok is false where no PersistentVolume of this driver has it.
	Find(ctx context.Context, handle string) (v Volume, ok bool, err error)
	// Room is how many bytes a node publishes that volumes of a pool may still be promised; ok is false where it publishes
	// none.
	Room(ctx context.Context, pool, node string) (bytes int64, ok bool, err error)
	// Given is the size in bytes that a claim's status shows; ok is false where the claim is gone.
	Given(ctx context.Context, c records.Claim) (bytes int64, ok bool, err error)
	// Grants lists the volumes that are larger than their claims' status shows.
	Grants(ctx context.Context) ([]Grant, error)
}

// Judge allows and refuses. What it allowed counts as taken until the claim's status shows it: from then on the room
// that the node publishes does. What others allowed before it asks the cluster for, once after each Begin: that lists
// every PersistentVolume and every claim, at 10,000 volumes 40 requests for tens of megabytes, which is too much for
// each growth.
type Judge struct {
	cluster Cluster

	mu     sync.Mutex
	asked  bool
	grants map[string]Grant // by handle
}

// New returns a judge over a cluster.
func New(c Cluster) (*Judge, error) {
	if c == nil {
		return nil, errors.New("judge of growth: the cluster is missing")
	}
	return &Judge{cluster: c, grants: map[string]Grant{}}, nil
}

// Begin forgets everything, for a process of csi-resizer has begun. Of several replicas only the judge beside the
// leader is asked, and it does not know who leads; but whoever leads again does so in a new process, for csi-resizer
// exits when it loses its lease, and a new one asks for the driver's name before it stands for election. So every term
// has a Begin between the others' last grant and its first question. What this judge allowed and its resizer did not
// live to write is not taken either.
func (j *Judge) Begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked, j.grants = false, map[string]Grant{}
}

// Expand allows a volume to grow to a size, which it gives rounded up to whole blocks, or the present one where that is
// larger. A node without room is volume.ErrOutOfRange. Where no room is published, or the volume is of no one node, the
// node decides.
func (j *Judge) Expand(ctx context.Context, handle string, bytes, limit int64) (int64, error) {
	size, err := volume.WholeBlocks(bytes, limit)
	if err != nil {
		return 0, err
	}
	j.mu.Lock() // one decision at a time, for each takes room from the next
	defer j.mu.Unlock()
	v, ok, err := j.cluster.Find(ctx, handle)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, fmt.Errorf("%w: no PersistentVolume of this driver names %s", records.ErrNotFound, handle)
	case size <= v.Bytes:
		return v.Bytes, nil
	case v.Node == "":
		return size, nil
	}
	if err := j.fits(ctx, v, size); err != nil {
		return 0, err
	}
	j.grants[handle] = Grant{Volume: v, To: size}
	return size, nil
}

// fits compares what a volume lacks to a size with the room that its node publishes, less what others were allowed.
func (j *Judge) fits(ctx context.Context, v Volume, size int64) error {
	room, ok, err := j.cluster.Room(ctx, v.Pool, v.Node)
	if err != nil || !ok {
		return err
	}
	if err := j.remember(ctx); err != nil {
		return err
	}
	others, err := j.outstanding(ctx, v)
	if err != nil {
		return err
	}
	given, ok, err := j.cluster.Given(ctx, v.Claim)
	if err != nil {
		return err
	}
	if !ok {
		given = v.Bytes
	}
	if more := size - given; more > room-others {
		return fmt.Errorf("%w: volume %s lacks %d bytes to %d, and node %s publishes room for %d in pool %s, of which %d "+
			"are promised to volumes that grow already; ask for less, or make room",
			volume.ErrOutOfRange, v.Handle, more, size, v.Node, room, v.Pool, others)
	}
	return nil
}

// remember asks once for what others allowed before.
func (j *Judge) remember(ctx context.Context) error {
	if j.asked {
		return nil
	}
	grants, err := j.cluster.Grants(ctx)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if _, ok := j.grants[g.Handle]; !ok {
			j.grants[g.Handle] = g
		}
	}
	j.asked = true
	return nil
}

// outstanding sums up what other volumes of the same pool and node were allowed and have not got yet, and forgets those
// that have.
func (j *Judge) outstanding(ctx context.Context, v Volume) (bytes int64, err error) {
	for handle, g := range j.grants {
		if handle == v.Handle || g.Pool != v.Pool || g.Node != v.Node {
			continue
		}
		given, ok, err := j.cluster.Given(ctx, g.Claim)
		if err != nil {
			return 0, err
		}
		if !ok || given >= g.To {
			delete(j.grants, handle)
			continue
		}
		bytes += g.To - given
	}
	return bytes, nil
}
