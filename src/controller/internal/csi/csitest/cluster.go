package csitest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Cluster is what the API server knows. It panics when it is asked about what a test has not set.
type Cluster struct {
	mu        sync.Mutex
	Pools     []poolspec.Pool // configured
	Clock     time.Time
	Silent    bool // the API does not answer
	Syncing   bool
	Unsure    bool // the API does not say whether a node is gone
	PVs       []nodeapi.PersistentVolume
	Contents  map[string][]string  // VolumeSnapshotContents by handle, nil in a cluster without snapshots
	Drivers   []string             // nodes with the driver
	NVMe      []string             // those of them with the label disk=nvme
	Standby   bool                 // another replica leads
	Gone      map[string]time.Time // since when there is no Node object, zero where there is one
	Nodes     []string             // with a Node object, beside Drivers and Gone
	Cordons   []string             // nodes that are cordoned
	Since     time.Time            // when all Node objects were known
	Claims    map[string]string    // selected nodes, by uid of the claim
	Other     string               // is selected by somebody else at the moment of SelectNode
	Events    []string
	IDs       map[string]string // of shared pools
	version   int               // of ids
	Pending   []nodeapi.WaitingClaim
	NodeLists int               // how often it was asked which nodes there are
	GoneAsked int               // how often NodeGone was asked
	Gets      int               // PersistentVolumes that were looked up
	Lists     int               // of VolumeSnapshotContents
	Moves     map[string]string // the nodes of volumes that are being moved
}

func (c *Cluster) moving(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Moves[id]
}

// Set changes the cluster.
func (c *Cluster) Set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *Cluster) err() error {
	if c.Silent {
		return fmt.Errorf("%w: connection refused", nodeapi.ErrClusterUnknown)
	}
	return nil
}

// Get implements inventory.Cluster.
func (c *Cluster) Get(_ context.Context, id string) (nodeapi.PersistentVolume, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Gets++
	i := slices.IndexFunc(c.PVs, func(pv nodeapi.PersistentVolume) bool { return pv.Handle == id })
	if i < 0 || c.Silent {
		return nodeapi.PersistentVolume{}, false, c.err()
	}
	return c.PVs[i], true, nil
}

// List implements inventory.Cluster.
func (c *Cluster) List() []nodeapi.PersistentVolume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.PVs)
}

// SnapshotContents implements inventory.Cluster.
func (c *Cluster) SnapshotContents(context.Context) (map[string][]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Lists++
	return maps.Clone(c.Contents), c.err()
}

// Known implements inventory.Cluster.
func (c *Cluster) Known(handle string) []nodeapi.PersistentVolume {
	return slices.DeleteFunc(c.List(), func(pv nodeapi.PersistentVolume) bool { return pv.Handle != handle })
}

// Synced implements fleet.Cluster.
func (c *Cluster) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.Syncing
}

// NodesWithDriver implements fleet.Cluster.
func (c *Cluster) NodesWithDriver(labels map[string]string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.NodeLists++
	switch {
	case len(labels) == 0:
		return slices.Clone(c.Drivers)
	case maps.Equal(labels, map[string]string{"disk": "nvme"}):
		return slices.Clone(c.NVMe)
	}
	panic(fmt.Sprint("which nodes have the labels ", labels))
}

// NodeNames implements csi.Cluster.
func (c *Cluster) NodeNames() ([]string, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Syncing {
		return nil, time.Time{}
	}
	return slices.AppendSeq(slices.Concat(c.Nodes, c.Drivers), maps.Keys(c.Gone)), c.Since
}

// NodeGone implements fleet.Cluster.
func (c *Cluster) NodeGone(_ context.Context, name string) (time.Time, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.Gone[name]
	c.GoneAsked++
	if c.Unsure {
		return since, false, fmt.Errorf("%w: forbidden", nodeapi.ErrClusterUnknown)
	}
	return since, !since.IsZero() && !c.Silent, c.err()
}

// Cordoned implements csi.Cluster.
func (c *Cluster) Cordoned(_ context.Context, node string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Unsure {
		return false, fmt.Errorf("%w: forbidden", nodeapi.ErrClusterUnknown)
	}
	return slices.Contains(c.Cordons, node), nil
}

// Leads implements fleet.Cluster.
func (c *Cluster) Leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.Standby
}

// SelectedNode implements csi.Claims.
func (c *Cluster) SelectedNode(_ context.Context, claim nodeapi.Claim) (node string, found bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, found = c.Claims[claim.UID]
	return node, found, c.err()
}

// SelectNode implements csi.Claims.
func (c *Cluster) SelectNode(_ context.Context, claim nodeapi.Claim, node string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	selected, ok := c.Claims[claim.UID]
	switch {
	case !ok:
		panic("claim " + claim.UID + " is not there")
	case c.Other != "":
		selected = c.Other
	case selected == "":
		selected = node
	}
	c.Claims[claim.UID] = selected
	return selected, c.err()
}

// TellNode implements fleet.Cluster.
func (c *Cluster) TellNode(node, kind, reason, message string) {
	c.Set(func() { c.Events = append(c.Events, fmt.Sprintf("%s %s %s: %s", kind, node, reason, message)) })
}

// TellVolume implements csi.Cluster.
func (c *Cluster) TellVolume(pv nodeapi.PersistentVolume, reason, message string) {
	c.TellNode(pv.Name, "Warning", reason, message)
}

// Waiting implements csi.Claims.
func (c *Cluster) Waiting() []nodeapi.WaitingClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.Pending)
}

// TellClaim implements csi.Cluster.
func (c *Cluster) TellClaim(claim nodeapi.Claim, kind, reason, message string) {
	c.TellNode(claim.String(), kind, reason, message)
}

// Told are the events with a text, and forgets them.
func (c *Cluster) Told(text string) (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Events = slices.DeleteFunc(c.Events, func(e string) bool {
		if strings.Contains(e, text) {
			found = append(found, e)
			return true
		}
		return false
	})
	return found
}

// time is the cluster's.
func (c *Cluster) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock
}

var errConflict = errors.New("the object has been modified")

// ClusterUID implements sharedpools.Identities.
func (c *Cluster) ClusterUID(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return OurCluster, c.err()
}

// OurCluster is its UID.
const OurCluster = "11111111-2222-3333-4444-555555555555"

// Load implements sharedpools.Identities.
func (c *Cluster) Load(context.Context) (map[string]string, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.IDs), fmt.Sprint(c.version), c.err()
}

// Store implements sharedpools.Identities.
func (c *Cluster) Store(_ context.Context, version string, ids map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != fmt.Sprint(c.version) {
		return errConflict
	}
	c.IDs, c.version = ids, c.version+1
	return c.err()
}

// RememberedID is the id of the pool local.
func (c *Cluster) RememberedID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.IDs["local"]
}
