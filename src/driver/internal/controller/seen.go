package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// see takes note of the pools that left the configuration and that nodes serve, and of pools that several nodes show.
func (s *Server) see() {
	left, showing := map[string]bool{}, map[poolID][]string{}
	for _, p := range s.Fleet.All() {
		pools, _ := p.Pools()
		for _, is := range pools {
			key := poolID{is.Name, is.ID}
			switch configured := slices.Contains(s.pools, key.name); {
			case key.id == "" || !is.Served():
			case !configured: // no single node makes others' pool a shared one
				shared, seen := left[key.name]
				left[key.name] = is.Shared && (shared || !seen)
			case !s.shared(key.name):
				showing[key] = append(showing[key], p.Name)
			}
		}
	}
	for _, nodes := range showing {
		slices.Sort(nodes)
	}
	s.mu.Lock()
	before := s.twins
	s.leftPools, s.twins = left, showing
	s.mu.Unlock()
	s.reportTwins(before, showing)
}

// reportTwins says of pools that several nodes show what is new.
func (s *Server) reportTwins(before, showing map[poolID][]string) {
	for is, nodes := range showing {
		if len(nodes) < 2 || slices.Equal(before[is], nodes) {
			continue
		}
		for _, node := range nodes {
			s.Fleet.TellNode(node, "Warning", "PoolOnSeveralNodes", severalNodes(is.name, nodes))
		}
	}
}

// poolID is a pool by its name and the id of its marker.
type poolID struct{ name, id string }

func severalNodes(name string, nodes []string) string {
	return fmt.Sprintf("pool %s has scope node, and is one filesystem on the nodes %s: what one of them does not know "+
		"it may undo; give each node a filesystem of its own, or the pool the scope shared", name, abridge.Names(nodes))
}

// twinsOf are the other nodes that show the same filesystem as a node's pool, which is not shared.
func (s *Server) twinsOf(node, name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for is, nodes := range s.twins {
		if is.name == name && slices.Contains(nodes, node) {
			return slices.DeleteFunc(slices.Clone(nodes), func(other string) bool { return other == node })
		}
	}
	return nil
}

// poolOf is the pool of a PersistentVolume, "" where it may be in any. One that names none is older than this
// configuration may be.
func (s *Server) poolOf(pv nodeapi.PersistentVolume) string {
	return poolspec.DefaultPool(s.servedPools(), pv.Pool)
}

// servedPools are the configured pools, and those that left the configuration and that nodes serve.
func (s *Server) servedPools() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(slices.Clone(s.pools), maps.Keys(s.leftPools))
}
