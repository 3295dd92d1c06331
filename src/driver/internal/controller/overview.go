package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Nodes implements control.Overview.
func (s *Server) Nodes() []nodeapi.NodeStatus {
	var all []nodeapi.NodeStatus
	for _, name := range s.Fleet.Names() {
		p := s.Fleet.Get(name)
		if p == nil {
			away := s.Fleet.Away(name)
			all = append(all, nodeapi.NodeStatus{
				Name: name, State: "not connected", Seen: s.Now().Add(-away),
				Message: fmt.Sprintf("away for %s, or since this controller started", away.Round(time.Second)),
			})
			continue
		}
		pools, seen := p.Pools()
		n := nodeapi.NodeStatus{Name: name, State: "connected", Version: p.Version, Since: p.Since, Seen: seen}
		for _, is := range pools {
			if twins := s.Shared.Twins(name, is.Name); len(twins) > 0 {
				is.Message = sharedpools.OnSeveralNodes(is.Name, append(twins, name))
			}
			n.Pools = append(n.Pools, is)
		}
		all = append(all, n)
	}
	return all
}

// listTimeout is how long one node may take to list its volumes, of the minute that the command waits.
const listTimeout = 20 * time.Second

// Volumes implements control.Overview: those of the connected nodes, and those that only a PersistentVolume names.
func (s *Server) Volumes(ctx context.Context) ([]nodeapi.VolumeStatus, error) {
	named := map[string]nodeapi.PersistentVolume{}
	for _, pv := range s.PVs.List() {
		named[pv.Handle] = pv
	}
	var (
		mu     sync.Mutex
		all    []nodeapi.VolumeStatus
		seen   = map[string]bool{}
		silent = map[string]string{}
		asking sync.WaitGroup
	)
	for _, p := range s.Fleet.All() {
		asking.Go(func() {
			brief, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			found, err := s.volumesOf(brief, p, named)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent[p.Name] = err.Error()
			}
			for _, v := range found {
				seen[v.ID] = true
			}
			all = append(all, found...)
		})
	}
	asking.Wait()
	for id, pv := range named {
		if !seen[id] {
			all = append(all, s.unseen(pv, silent))
		}
	}
	return all, nil
}

func (s *Server) volumesOf(
	ctx context.Context, p *fleet.Peer, named map[string]nodeapi.PersistentVolume,
) (found []nodeapi.VolumeStatus, err error) {
	err = p.Volumes(ctx, func(v nodeapi.VolumeStatus) error {
		if !s.Shared.Represents(p.Name, v.Pool) {
			return nil
		}
		pv := named[v.ID]
		v.Node, v.PV = p.Name, pv.Name
		if s.alone(v) {
			v.State = map[string]string{
				unnamed: "orphan", elsewhere: "orphan, of node " + strings.Join(pv.Nodes, ","),
			}[s.orphaned(v, pv, p.Name)]
		}
		found = append(found, v)
		return nil
	})
	return found, err
}

// unseen is a volume that no node has shown.
func (s *Server) unseen(pv nodeapi.PersistentVolume, silent map[string]string) nodeapi.VolumeStatus {
	v := nodeapi.VolumeStatus{
		ID: pv.Handle, Node: strings.Join(pv.Nodes, ","), Pool: pv.Pool, Bytes: pv.Bytes, Used: -1, PV: pv.Name,
		Claim: pv.Claim.String(), State: "not found",
	}
	node, in := v.Node, s.Shared.PoolOf(pv)
	if s.Shared.Everywhere(in) {
		node = s.Shared.Representative(in)
	}
	if why, failed := silent[node]; failed {
		v.State = why
	} else if p := s.Fleet.Get(node); p == nil {
		v.State = "node not connected"
	} else if is := p.Pool(in); !is.Served() {
		v.State = "pool " + cmp.Or(is.State, nodeapi.StateNotConfigured)
	}
	return v
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(s, descriptions)
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(metrics chan<- prometheus.Metric) {
	orphans := prometheus.NewDesc("hpp_controller_orphans",
		"Volumes that no PersistentVolume names, or one of another node, at the last search.",
		[]string{"node", "pool", "kind"}, nil)
	all := s.Fleet.Names()
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, pools := range s.found {
		if !slices.Contains(all, node) { // it is gone
			continue
		}
		for name, f := range pools {
			for kind, ids := range map[string][]string{unnamed: f.unnamed, elsewhere: f.elsewhere} {
				metrics <- prometheus.MustNewConstMetric(orphans, prometheus.GaugeValue, float64(len(ids)), node, name, kind)
			}
		}
	}
}
