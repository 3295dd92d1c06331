// Package inventory compares what is on nodes with what PersistentVolumes say.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	// searchInterval is how often all nodes are asked for their volumes, searchPause how soon one that has connected
	// again is, and lookInterval how often it is looked for those that are to be.
	searchInterval, searchPause, lookInterval = time.Hour, time.Minute, time.Second
	// settling is how long a driver that has connected may look at its pools before it is asked.
	settling = 10 * time.Second
	// searchTimeout bounds what one node takes, searchers is how many are asked at once.
	searchTimeout, searchers = time.Minute, 16
	// maxUnnamed is how many volumes of one node, which no known PersistentVolume names, the API is asked about at a
	// time.
	maxUnnamed = 1000
)

// Kinds of orphans.
const (
	noPV      = "no-pv"
	otherNode = "other-node"
	otherPool = "other-pool"
	noContent = "no-snapshot-content" // a snapshot
)

// orphans are those of one pool on one node, by kind.
type orphans map[string][]string

// Cluster has the PersistentVolumes and VolumeSnapshotContents of this driver; nodeapi.ErrClusterUnknown where the API
// does not answer.
type Cluster interface {
	// Get finds the one whose volumeHandle is id; ok is false where there surely is none.
	Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error)
	// Known gives all with that volumeHandle that are known without a question to the API, by name.
	Known(handle string) []nodeapi.PersistentVolume
	List() []nodeapi.PersistentVolume
	// SnapshotContents are the names of VolumeSnapshotContents by handle, nil where the cluster has no snapshots.
	SnapshotContents(ctx context.Context) (map[string][]string, error)
}

// Inventory is what is on the nodes.
type Inventory struct {
	cluster Cluster
	fleet   *fleet.Fleet
	shared  *sharedpools.Pools
	// orphanAge is how old a volume must be before it counts as an orphan.
	orphanAge time.Duration
	contents  contents
	moving    func(id string) (node string)

	mu sync.Mutex
	// found are the orphans by node and pool.
	found map[string]map[string]orphans
	// searched is when a node was last asked for its volumes.
	searched map[string]time.Time
}

// New returns an inventory of which nothing was looked for yet. A volume must be of that age before it counts as an
// orphan, and not be moving: then two nodes have it.
func New(
	cluster Cluster, nodes *fleet.Fleet, shared *sharedpools.Pools, orphanAge time.Duration,
	moving func(id string) (node string),
) (*Inventory, error) {
	if orphanAge <= 0 {
		return nil, errors.New("inventory: want a positive age of orphans")
	}
	i := &Inventory{
		cluster: cluster, fleet: nodes, shared: shared, orphanAge: orphanAge, moving: moving,
		found: map[string]map[string]orphans{}, searched: map[string]time.Time{},
	}
	if err := nodes.Metrics.Register(i); err != nil {
		return nil, fmt.Errorf("register the metrics of orphans: %w", err)
	}
	return i, nil
}

// Forget drops what is known of a node without a Node object.
func (i *Inventory) Forget(node string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.found, node)
	delete(i.searched, node)
}

// Run searches each node that has connected, and once an hour, until ctx ends.
func (i *Inventory) Run(ctx context.Context) {
	i.fleet.Every(ctx, lookInterval, func() {
		due := slices.DeleteFunc(i.fleet.All(), func(p *fleet.Peer) bool { return !i.isDue(p) })
		var searching sync.WaitGroup
		for some := range slices.Chunk(due, 1+len(due)/searchers) {
			searching.Go(func() {
				for _, p := range some {
					i.searchNode(ctx, p)
				}
			})
		}
		searching.Wait()
	})
}

// isDue reports, once, that a node is to be searched.
func (i *Inventory) isDue(p *fleet.Peer) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, last := i.fleet.Now(), i.searched[p.Name]
	pause := searchInterval
	if !last.After(p.Since) {
		pause = searchPause
	}
	if now.Sub(p.Since) < settling || now.Sub(last) < pause {
		return false
	}
	i.searched[p.Name] = now
	return true
}

// searchNode looks among a node's volumes for those that no PersistentVolume names, or one of another node or pool, for
// inline volumes that no pod has mounted: one whose pod ended while its pool was absent, and for snapshots that no
// VolumeSnapshotContent names. They are reported, and never removed for that.
func (i *Inventory) searchNode(ctx context.Context, p *fleet.Peer) {
	node := p.Name
	if i.fleet.Get(node) != p {
		return
	}
	brief, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	found, err := i.findOrphans(brief, p)
	if err != nil && ctx.Err() == nil {
		i.fleet.Log.WarnContext(ctx, "cannot look for orphans", logging.KeyNode, node, logging.KeyError, err)
	}
	if err != nil && status.Code(err) != codes.Unavailable {
		return
	}
	i.mu.Lock()
	before := i.found[node]
	if err != nil { // a pool hangs: of it what was found last stands
		for pool, was := range before {
			if found[pool] == nil {
				found[pool] = was
			}
		}
	}
	i.found[node] = found
	i.mu.Unlock()
	for pool, kinds := range found {
		for kind, ids := range kinds {
			if !sets.New(before[pool][kind]...).HasAll(ids...) {
				i.reportOrphans(node, pool, kind, ids)
			}
		}
	}
}

func (i *Inventory) reportOrphans(node, pool, kind string, ids []string) {
	reason, why := "VolumesOrphaned", "no PersistentVolume, and for inline volumes no pod, names"
	switch kind {
	case otherNode:
		reason, why = "VolumesOfOtherNodes", "the PersistentVolume names another node"
	case otherPool:
		reason, why = "VolumesOfOtherPools", "the PersistentVolume names another pool"
	case noContent:
		reason, why = "SnapshotsOrphaned", "no VolumeSnapshotContent names"
	}
	slices.Sort(ids)
	i.fleet.Log.Warn("volumes are orphaned", logging.KeyNode, node, logging.KeyPool, pool, logging.KeyReason, reason,
		logging.KeyVolumes, abridge.Names(ids))
	i.fleet.TellNode(node, "Warning", reason, fmt.Sprintf("pool %s: %s: %s", pool, why, abridge.Names(ids)))
}

// findOrphans gives those of a node by pool; a pool without any has none.
func (i *Inventory) findOrphans(ctx context.Context, p *fleet.Peer) (map[string]orphans, error) {
	found, asked := map[string]orphans{}, 0
	err := p.Volumes(ctx, func(v nodeapi.VolumeStatus) error {
		if !slices.Contains(i.shared.Served(), v.Pool) || !i.shared.Represents(p.Name, v.Pool) {
			return nil
		}
		if found[v.Pool] == nil {
			found[v.Pool] = orphans{}
		}
		if !i.orphanCandidate(v, false) {
			return nil
		}
		if v.SnapshotOf == "" && len(i.cluster.Known(v.ID)) == 0 {
			if asked++; asked > maxUnnamed {
				return nil
			}
		}
		kind, id, err := i.examine(ctx, v, p.Name)
		if kind != "" {
			found[v.Pool][kind] = append(found[v.Pool][kind], id)
		}
		return err
	})
	if asked > maxUnnamed {
		i.fleet.Log.WarnContext(ctx, "a node has more volumes that no PersistentVolume names than are looked at",
			logging.KeyNode, p.Name, logging.KeyCount, asked)
	}
	return found, err
}

// examine gives the kind of orphan that a candidate is, "" for none, and how it is reported.
func (i *Inventory) examine(ctx context.Context, v nodeapi.VolumeStatus, node string) (kind, id string, err error) {
	if v.SnapshotOf != "" {
		orphan, err := i.isOrphanSnapshot(ctx, v.ID, time.Time{})
		if orphan {
			kind = noContent
		}
		return kind, v.ID, err
	}
	pv, _, err := i.cluster.Get(ctx, v.ID)
	switch {
	case errors.Is(err, nodeapi.ErrNamed): // by more than one
		return "", "", nil
	case err != nil:
		return "", "", err
	}
	kind = i.orphanKind(v, pv, node)
	return kind, v.ID + instead(kind, pv), nil
}

// instead says what the PersistentVolume of an orphan names instead, "" where there is none.
func instead(kind string, pv nodeapi.PersistentVolume) string {
	switch kind {
	case otherNode:
		return fmt.Sprintf(" (node %s)", abridge.Names(pv.Nodes))
	case otherPool:
		return fmt.Sprintf(" (pool %s)", pv.Pool)
	default:
		return ""
	}
}

// orphanCandidate reports whether a volume or snapshot may be an orphan, whatever the API says: one that is being made
// is none, nor one that is young and may be waiting for what is to name it, unless it is named.
func (i *Inventory) orphanCandidate(v nodeapi.VolumeStatus, named bool) bool {
	return (named || !v.Created.After(i.fleet.Now().Add(-i.orphanAge))) && !(v.Ephemeral && v.Published) &&
		(v.Copying == "" || v.Copying == nodeapi.NotWhole) && i.moving(v.ID) == ""
}

// orphanKind is the kind of orphan that a volume is on a node, "" for none. A PersistentVolume that is not there is the
// zero one. What is in a shared pool, every node has, whichever the PersistentVolume names. A pool of another name than
// that names may be the same, renamed: it is another one where both are there.
func (i *Inventory) orphanKind(v nodeapi.VolumeStatus, pv nodeapi.PersistentVolume, node string) string {
	switch {
	case v.Ephemeral, pv.Handle == "":
		return noPV
	case len(pv.Nodes) > 0 && !slices.Contains(pv.Nodes, node) && !i.shared.Everywhere(v.Pool):
		return otherNode
	case pv.Pool != "" && pv.Pool != v.Pool && slices.Contains(i.shared.Served(), pv.Pool):
		return otherPool
	default:
		return ""
	}
}
