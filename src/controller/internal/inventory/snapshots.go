package inventory

import (
	"context"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// contentsAge is how old the list of VolumeSnapshotContents may be, which takes many requests in a large cluster.
const contentsAge = time.Minute

// contents are the VolumeSnapshotContents, as they were listed last.
type contents struct {
	mu       sync.Mutex
	byHandle map[string][]string // nil where the cluster has no snapshots
	err      error
	listed   time.Time
}

// isOrphanSnapshot reports whether no VolumeSnapshotContent names a snapshot, as of since or later. Where the cluster
// has no snapshots, nothing can be said.
func (i *Inventory) isOrphanSnapshot(ctx context.Context, id string, since time.Time) (bool, error) {
	c := &i.contents
	c.mu.Lock()
	defer c.mu.Unlock()
	now := i.fleet.Now()
	if now.Sub(c.listed) >= contentsAge || c.byHandle[id] == nil && c.listed.Before(since) {
		byHandle, err := i.cluster.SnapshotContents(ctx)
		if ctx.Err() != nil { // who asks has left, and the next one asks again
			return false, err
		}
		c.byHandle, c.err, c.listed = byHandle, err, now
	}
	return c.err == nil && c.byHandle != nil && c.byHandle[id] == nil, c.err
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
