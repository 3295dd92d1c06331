package sharedpools

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
)

// marker is a pool by its name and the id of its marker.
type marker struct{ pool, id string }

// survey takes note of the pools that left the configuration and that nodes serve, and of pools that several nodes
// show.
func (p *Pools) survey() {
	left, showing := map[string]bool{}, map[marker][]string{}
	for _, n := range p.fleet.All() {
		pools, _ := n.Pools()
		for _, is := range pools {
			key := marker{is.Name, is.ID}
			switch configured := slices.Contains(p.Names, key.pool); {
			case key.id == "" || !is.Served():
			case !configured: // no single node makes others' pool a shared one
				shared, seen := left[key.pool]
				left[key.pool] = is.Shared && (shared || !seen)
			case !p.Everywhere(key.pool):
				showing[key] = append(showing[key], n.Name) // by name, as All is
			}
		}
	}
	p.mu.Lock()
	before := p.twins
	p.left, p.twins = left, showing
	p.mu.Unlock()
	p.reportTwins(before, showing)
}

// reportTwins says of pools that several nodes show what is new.
func (p *Pools) reportTwins(before, showing map[marker][]string) {
	for is, nodes := range showing {
		if len(nodes) < 2 || slices.Equal(before[is], nodes) {
			continue
		}
		for _, node := range nodes {
			p.fleet.TellNode(node, "Warning", "PoolOnSeveralNodes", OnSeveralNodes(is.pool, nodes))
		}
	}
}

// OnSeveralNodes says what is wrong with a pool that several nodes show.
func OnSeveralNodes(pool string, nodes []string) string {
	return fmt.Sprintf("pool %s has scope node, and is one filesystem on the nodes %s: what one of them does not know "+
		"it may undo; give each node a filesystem of its own, or the pool the scope shared", pool, abridge.Names(nodes))
}

// Twins are the other nodes that show the same filesystem as a node's pool, which is not shared.
func (p *Pools) Twins(node, pool string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for is, nodes := range p.twins {
		if is.pool == pool && slices.Contains(nodes, node) {
			return slices.DeleteFunc(slices.Clone(nodes), func(other string) bool { return other == node })
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (p *Pools) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(p, descriptions)
}

// Collect implements prometheus.Collector.
func (p *Pools) Collect(metrics chan<- prometheus.Metric) {
	twins := prometheus.NewDesc("hpp_controller_pool_twins",
		"How many other nodes show the filesystem of a node's pool, which has scope node.",
		[]string{"node", "pool"}, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	for is, nodes := range p.twins {
		for _, node := range nodes {
			metrics <- prometheus.MustNewConstMetric(twins, prometheus.GaugeValue, float64(len(nodes)-1), node, is.pool)
		}
	}
}
