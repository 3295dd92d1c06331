package csi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// claimTimeout is how long a claim may wait before its owner is told why: volumes take a second.
	claimTimeout = 30 * time.Second
	// explainInterval is how often claims that wait are looked at.
	explainInterval = 5 * time.Second
)

// standing is where a pool is, or one of several, among the nodes that have the driver and that its nodeSelector
// selects.
type standing struct {
	pool    string
	nodes   int
	missing []string // nodes without it, and why
	largest int64    // new volume that a node has room for now, in bytes
	whole   int64    // the most that a node could ever have
	where   string   // that node
}

func (c Config) standingOf(pools []string) standing {
	is := standing{pool: either(pools)}
	for _, node := range c.nodesSelected(pools) {
		is.nodes++
		p := c.Fleet.Get(node)
		if p == nil {
			is.missing = append(is.missing, node+": it is not connected to the controller")
			continue
		}
		absent, present := "", false
		for _, pool := range pools {
			seen := p.Pool(pool)
			whole := max(seen.Size, seen.Allocatable, seen.Promised+seen.Growable)
			if seen.State != nodeapi.StatePresent {
				absent = cmp.Or(absent, seen.Message, seen.State, "it has not shown its pools yet")
				continue
			}
			present = true
			if is.largest = max(is.largest, seen.Allocatable); whole > is.whole {
				is.whole, is.where = whole, node
			}
		}
		if !present {
			is.missing = append(is.missing, node+": "+absent)
		}
	}
	return is
}

// String says on how many nodes the pool is, and why not on others.
func (is standing) String() string {
	const most = 3
	if is.nodes == 0 {
		return fmt.Sprintf("the nodeSelector of pool %s selects no node that has the driver", is.pool)
	}
	text := fmt.Sprintf("pool %s is present on %d of %d nodes", is.pool, is.nodes-len(is.missing), is.nodes)
	text = strings.Join(append([]string{text}, is.missing[:min(len(is.missing), most)]...), "; ")
	if more := len(is.missing) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Run tells the owners of claims that wait for a pool why they do, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	reasons := map[string]string{}
	c.Fleet.Every(ctx, explainInterval, func() {
		if c.Fleet.Leads() {
			reasons = c.explainWaiting(reasons)
		}
	})
}

// explainWaiting does so once for each reason, by the claim's uid; the scheduler only says that no node has enough free
// storage.
func (c Config) explainWaiting(before map[string]string) map[string]string {
	now, reasons, pools := c.Fleet.Now(), map[string]string{}, map[string]standing{}
	for _, claim := range c.Cluster.Waiting() {
		if now.Sub(claim.Since) < claimTimeout {
			continue
		}
		reason, message := c.reasonOf(claim, pools)
		if reason == "" {
			continue
		}
		if reasons[claim.Claim.UID] = reason; before[claim.Claim.UID] != reason {
			c.Cluster.TellClaim(claim.Claim, "Warning", reason, message)
		}
	}
	return reasons
}

// reasonOf is why a claim waits, "" where its pool is not to blame.
func (c Config) reasonOf(claim nodeapi.WaitingClaim, pools map[string]standing) (reason, message string) {
	asked, err := poolspec.PoolsOf(c.Shared.Configured, claim.Pool)
	if err != nil {
		return "PoolUnknown", fmt.Sprintf("%s of the StorageClass: %v", names.StoragePoolParameter, err)
	}
	if slices.ContainsFunc(asked, c.isUnknown) {
		return "PoolUnknown", fmt.Sprintf("%s of the StorageClass: %.64q is in no configuration; want one of %s",
			names.StoragePoolParameter, claim.Pool, strings.Join(c.Shared.Names, ", "))
	}
	pool := either(asked)
	is, ok := pools[pool]
	if !ok {
		is = c.standingOf(asked)
		pools[pool] = is
	}
	switch {
	case claim.Bytes <= is.largest:
		return "", ""
	case is.nodes == 0 || len(is.missing) > 0:
		message = is.String()
		if is.whole > 0 {
			message += fmt.Sprintf("; where it is, a new volume can have %s, and the claim asks for %s",
				bytesize.Format(max(0, is.largest)), bytesize.Format(claim.Bytes))
		}
		return "PoolMissing", message
	case claim.Bytes > is.whole:
		return "ClaimTooLarge", fmt.Sprintf("the claim asks for %s, and no node could ever have that in pool %s: the "+
			"most is %s, on node %s; ask for less, or make the pool larger",
			bytesize.Format(claim.Bytes), pool, bytesize.Format(is.whole), is.where)
	}
	return "", "" // volumes that are there have the room
}
