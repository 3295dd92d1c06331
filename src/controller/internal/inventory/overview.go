package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Connection is that of a node, for what an administrator asks of it.
func (i *Inventory) Connection(node string) (grpc.ClientConnInterface, error) {
	if known := i.fleet.Names(); !slices.Contains(known, node) {
		return nil, status.Errorf(codes.NotFound, "node: %.253q is none with the driver; there are: %s", node,
			abridge.Names(known))
	}
	return i.fleet.Peer(node)
}

// Everywhere reports whether a pool is on all nodes.
func (i *Inventory) Everywhere(pool string) bool { return i.shared.Everywhere(pool) }

// Nodes are the nodes that have the driver, with their pools.
func (i *Inventory) Nodes() []nodeapi.NodeStatus {
	var all []nodeapi.NodeStatus
	for _, name := range i.fleet.Names() {
		p := i.fleet.Get(name)
		if p == nil {
			away := i.fleet.Away(name)
			all = append(all, nodeapi.NodeStatus{
				Name: name, State: "not connected", Seen: i.fleet.Now().Add(-away),
				Message: fmt.Sprintf("away for %s, or since this controller started", away.Round(time.Second)),
			})
			continue
		}
		pools, seen := p.Pools()
		n := nodeapi.NodeStatus{Name: name, State: "connected", Version: p.Version, Since: p.Since, Seen: seen}
		for _, is := range pools {
			if twins := i.shared.Twins(name, is.Name); len(twins) > 0 {
				is.Message = sharedpools.OnSeveralNodes(is.Name, append(twins, name))
			}
			n.Pools = append(n.Pools, is)
		}
		all = append(all, n)
	}
	return all
}

// orphanOfPool begins the state of a volume whose PersistentVolume names the pool after it.
const orphanOfPool = "orphan, of pool "

// listTimeout is how long one node may take to list its volumes, of the minute that the command waits.
const listTimeout = 20 * time.Second

// Volumes are those of the connected nodes, and those that only a PersistentVolume names.
func (i *Inventory) Volumes(ctx context.Context) ([]nodeapi.VolumeStatus, error) {
	named := map[string]nodeapi.PersistentVolume{}
	for _, pv := range i.cluster.List() {
		named[pv.Handle] = pv
	}
	var (
		mu     sync.Mutex
		all    []nodeapi.VolumeStatus
		seen   = map[string]bool{}
		silent = map[string]string{}
		asking sync.WaitGroup
	)
	for _, p := range i.fleet.All() {
		asking.Go(func() {
			brief, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			found, err := i.volumesOf(brief, p, named)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent[p.Name] = abridge.Line(err.Error())
			}
			for _, v := range found { // a copy in another pool is not the volume
				seen[v.ID] = seen[v.ID] || !strings.HasPrefix(v.State, orphanOfPool)
			}
			all = append(all, found...)
		})
	}
	asking.Wait()
	for id, pv := range named {
		if !seen[id] {
			all = append(all, i.describeUnseen(pv, silent))
		}
	}
	return all, nil
}

func (i *Inventory) volumesOf(
	ctx context.Context, p *fleet.Peer, named map[string]nodeapi.PersistentVolume,
) (found []nodeapi.VolumeStatus, err error) {
	asked := i.fleet.Now()
	err = p.Volumes(ctx, func(v nodeapi.VolumeStatus) error {
		if !i.shared.Represents(p.Name, v.Pool) {
			return nil
		}
		pv := named[v.ID]
		v.Node, v.PV, v.State = p.Name, pv.Name, v.OnItsNode()
		switch candidate := i.orphanCandidate(v, pv.Handle != ""); {
		case candidate && v.SnapshotOf != "":
			v.State = i.stateOfSnapshot(ctx, v, asked)
		case candidate:
			v.State = map[string]string{
				noPV: "orphan", otherNode: "orphan, of node " + strings.Join(pv.Nodes, ","),
				otherPool: orphanOfPool + pv.Pool,
			}[i.orphanKind(v, pv, p.Name)]
		}
		if v.State == "" && i.moving(v.ID) != "" {
			v.State = nodeapi.MovingAway
		}
		found = append(found, v)
		return nil
	})
	return found, err
}

// describeUnseen is a volume that no node has shown.
func (i *Inventory) describeUnseen(pv nodeapi.PersistentVolume, silent map[string]string) nodeapi.VolumeStatus {
	v := nodeapi.VolumeStatus{
		ID: pv.Handle, Node: strings.Join(pv.Nodes, ","), Pool: pv.Pool, Bytes: pv.Bytes, Used: -1, PV: pv.Name,
		Claim: pv.Claim.String(), State: "not found",
	}
	node, in := v.Node, i.shared.PoolOf(pv)
	if i.shared.Everywhere(in) {
		node = i.shared.Representative(in)
	}
	if why, failed := silent[node]; failed {
		v.State = why
	} else if p := i.fleet.Get(node); p == nil {
		v.State = "node not connected"
	} else if is := p.Pool(in); !is.Served() {
		v.State = "pool " + cmp.Or(is.State, nodeapi.StateNotConfigured)
	}
	return v
}

// Describe implements prometheus.Collector.
func (i *Inventory) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(i, descriptions)
}

// Collect implements prometheus.Collector.
func (i *Inventory) Collect(metrics chan<- prometheus.Metric) {
	orphans := prometheus.NewDesc("hpp_controller_orphans",
		"Volumes that no PersistentVolume names, or one of another node or pool, and snapshots that no "+
			"VolumeSnapshotContent names, at the last search.",
		[]string{"node", "pool", "kind"}, nil)
	all := i.fleet.Names()
	i.mu.Lock()
	defer i.mu.Unlock()
	for node, pools := range i.found {
		if !slices.Contains(all, node) { // it is gone
			continue
		}
		for pool, kinds := range pools {
			for _, kind := range []string{noPV, otherNode, otherPool, noContent} {
				metrics <- prometheus.MustNewConstMetric(orphans, prometheus.GaugeValue, float64(len(kinds[kind])),
					node, pool, kind)
			}
		}
	}
}
