package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// WaitingClaim is a claim of one of the driver's StorageClasses that has no volume.
type WaitingClaim struct {
	Claim nodeapi.Claim
	Pool  string // the class's storagePool
	Bytes int64
	Since time.Time // its creation
}

// claimPatience is how long a claim may wait before its owner is told why: volumes take a second.
const claimPatience = 30 * time.Second

// standing is where a pool is, among the nodes that have the driver and that its nodeSelector selects.
type standing struct {
	pool    string
	nodes   int
	missing []string // nodes without it, and why
	largest int64    // new volume that a node has room for now, in bytes
	whole   int64    // the most that a node could ever have
	where   string   // that node
}

func (s *Server) standing(name string) standing {
	is := standing{pool: name}
	nodes := s.Fleet.NodesWithDriver(s.Shared.Configured[slices.Index(s.Shared.Names, name)].NodeSelector)
	slices.Sort(nodes)
	for _, node := range nodes {
		is.nodes++
		p := s.Fleet.Get(node)
		var seen nodeapi.PoolStatus
		if p != nil {
			seen = p.Pool(name)
		}
		switch whole := max(seen.Size, seen.Allocatable, seen.Promised+seen.Growable); {
		case p == nil:
			is.missing = append(is.missing, node+": it is not connected to the controller")
		case seen.State != nodeapi.StatePresent:
			why := cmp.Or(seen.Message, seen.State, "it has not shown its pools yet")
			is.missing = append(is.missing, node+": "+why)
		case whole > is.whole:
			is.whole, is.where = whole, node
			fallthrough
		default:
			is.largest = max(is.largest, seen.Allocatable)
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

// explain tells the owners of claims that wait for a pool why they do, once for each reason; told is what they know.
// The scheduler only says that no node has enough free storage.
func (s *Server) explain(told map[string]string) map[string]string {
	now, known, pools := s.Now(), map[string]string{}, map[string]standing{}
	for _, c := range s.Claims.Waiting() {
		if now.Sub(c.Since) < claimPatience {
			continue
		}
		reason, message := s.reason(c, pools)
		if reason == "" {
			continue
		}
		if known[c.Claim.UID] = reason; told[c.Claim.UID] != reason {
			s.Events.TellClaim(c.Claim, "Warning", reason, message)
		}
	}
	return known
}

// reason is why a claim waits, "" where its pool is not to blame.
func (s *Server) reason(c WaitingClaim, pools map[string]standing) (reason, message string) {
	name := poolspec.DefaultPool(s.Shared.Names, c.Pool)
	if !slices.Contains(s.Shared.Names, name) {
		return "PoolUnknown", fmt.Sprintf("%s of the StorageClass: %.64q is in no configuration; want one of %s",
			names.StoragePoolParameter, c.Pool, strings.Join(s.Shared.Names, ", "))
	}
	is, ok := pools[name]
	if !ok {
		is = s.standing(name)
		pools[name] = is
	}
	switch {
	case c.Bytes <= is.largest:
		return "", ""
	case is.nodes == 0 || len(is.missing) > 0:
		message = is.String()
		if is.whole > 0 {
			message += fmt.Sprintf("; where it is, a new volume can have %s, and the claim asks for %s",
				bytesize.Format(max(0, is.largest)), bytesize.Format(c.Bytes))
		}
		return "PoolMissing", message
	case c.Bytes > is.whole:
		return "ClaimTooLarge", fmt.Sprintf("the claim asks for %s, and no node could ever have that in pool %s: the most "+
			"is %s, on node %s; ask for less, or make the pool larger",
			bytesize.Format(c.Bytes), name, bytesize.Format(is.whole), is.where)
	}
	return "", "" // volumes that are there have the room
}
