package inventory

import (
	"context"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// handlesAge is how old the list of VolumeSnapshotContents may be, which takes many requests in a large cluster.
const handlesAge = time.Minute

// handles are those that VolumeSnapshotContents have, as they were listed last.
type handles struct {
	mu     sync.Mutex
	all    map[string]bool // nil where the cluster has no snapshots
	err    error
	listed time.Time
}

// isOrphanSnapshot reports whether no VolumeSnapshotContent names a snapshot, as of since or later. Where the cluster
// has no snapshots, nothing can be said.
func (i *Inventory) isOrphanSnapshot(ctx context.Context, id string, since time.Time) (bool, error) {
	h := &i.handles
	h.mu.Lock()
	defer h.mu.Unlock()
	now := i.fleet.Now()
	if now.Sub(h.listed) >= handlesAge || !h.all[id] && h.listed.Before(since) {
		all, err := i.cluster.SnapshotHandles(ctx)
		if ctx.Err() != nil { // who asks has left, and the next one asks again
			return false, err
		}
		h.all, h.err, h.listed = all, err, now
	}
	return h.err == nil && h.all != nil && !h.all[id], h.err
}

// stateOfSnapshot is what is unusual about a snapshot that may be an orphan, as of since or later.
func (i *Inventory) stateOfSnapshot(ctx context.Context, v nodeapi.VolumeStatus, since time.Time) string {
	orphan, err := i.isOrphanSnapshot(ctx, v.ID, since)
	switch {
	case err != nil:
		return v.State + ", perhaps an orphan: the Kubernetes API does not say"
	case orphan:
		return "orphan, " + v.State
	default:
		return v.State
	}
}
