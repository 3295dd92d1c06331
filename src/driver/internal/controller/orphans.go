package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// orphans are those of one pool on one node.
type orphans struct {
	unnamed, elsewhere []string
}

// searchAll searches nodes that have connected, and each hour all.
func (s *Server) searchAll(ctx context.Context) {
	hourly := time.NewTicker(wait.Jitter(orphanInterval, 0.1))
	defer hourly.Stop()
	for {
		var nodes []string
		select {
		case <-ctx.Done():
			return
		case node := <-s.Fleet.Arrived():
			for nodes = []string{node}; len(s.Fleet.Arrived()) > 0; {
				nodes = append(nodes, <-s.Fleet.Arrived())
			}
			nodes = slices.DeleteFunc(nodes, s.searchedJustNow)
		case <-hourly.C:
			for _, p := range s.Fleet.All() {
				nodes = append(nodes, p.Name)
			}
		}
		var searching sync.WaitGroup
		for some := range slices.Chunk(nodes, 1+len(nodes)/searchers) {
			searching.Go(func() {
				for _, node := range some {
					s.searchNode(ctx, node)
				}
			})
		}
		searching.Wait()
	}
}

// searchedJustNow reports whether a node has connected, and was asked, a moment ago already.
func (s *Server) searchedJustNow(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.Now(); now.Sub(s.searched[node]) >= searchPause {
		s.searched[node] = now
		return false
	}
	return true
}

// searchNode looks among a node's volumes for those that no PersistentVolume names, or one of another node, and for
// inline volumes that no pod has mounted: one whose pod ended while its pool was absent. They are reported, and never
// removed for that.
func (s *Server) searchNode(ctx context.Context, node string) {
	p := s.Fleet.Get(node)
	if p == nil {
		return
	}
	brief, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := s.searchPeer(brief, p)
	if err != nil && ctx.Err() == nil {
		s.Log.WarnContext(ctx, "cannot look for orphans", logging.KeyNode, node, logging.KeyError, err)
	}
	if err != nil && status.Code(err) != codes.Unavailable {
		return
	}
	s.mu.Lock()
	before := s.found[node]
	if err != nil { // a pool hangs: of it what was found last stands
		for name, was := range before {
			if _, again := found[name]; !again {
				found[name] = was
			}
		}
	}
	s.found[node] = found
	s.mu.Unlock()
	for name, f := range found {
		was := before[name]
		if len(f.unnamed) > len(was.unnamed) {
			s.warn(node, name, "VolumesOrphaned", "no PersistentVolume, and for inline volumes no pod, names", f.unnamed)
		}
		if len(f.elsewhere) > len(was.elsewhere) {
			s.warn(node, name, "VolumesOfOtherNodes", "the PersistentVolume names another node", f.elsewhere)
		}
	}
}

func (s *Server) warn(node, name, reason, why string, ids []string) {
	s.Log.Warn("volumes are orphaned", logging.KeyNode, node, logging.KeyPool, name, logging.KeyReason, reason,
		logging.KeyVolumes, abridge.Names(ids))
	s.Fleet.TellNode(node, "Warning", reason, fmt.Sprintf("pool %s: %s: %s", name, why, abridge.Names(ids)))
}

func (s *Server) searchPeer(ctx context.Context, p *fleet.Peer) (map[string]orphans, error) {
	found, asked := map[string]orphans{}, 0
	err := p.Volumes(ctx, func(v nodeapi.VolumeStatus) error {
		if !slices.Contains(s.Shared.Served(), v.Pool) || !s.Shared.Represents(p.Name, v.Pool) {
			return nil
		}
		f := found[v.Pool]
		defer func() { found[v.Pool] = f }() // none, too: that is a figure
		if !s.alone(v) {
			return nil
		}
		if len(s.PVs.Known(v.ID)) == 0 {
			if asked++; asked > maxUnnamed {
				return nil
			}
		}
		pv, _, err := s.PVs.Get(ctx, v.ID)
		if errors.Is(err, nodeapi.ErrNamed) { // by more than one
			return nil
		}
		if err != nil {
			return err
		}
		switch s.orphaned(v, pv, p.Name) {
		case unnamed:
			f.unnamed = append(f.unnamed, v.ID)
		case elsewhere:
			f.elsewhere = append(f.elsewhere, fmt.Sprintf("%s (node %s)", v.ID, abridge.Names(pv.Nodes)))
		}
		return nil
	})
	if asked > maxUnnamed {
		s.Log.WarnContext(ctx, "a node has more volumes that no PersistentVolume names than are looked at",
			logging.KeyNode, p.Name, logging.KeyCount, asked)
	}
	for _, f := range found {
		slices.Sort(f.unnamed)
		slices.Sort(f.elsewhere)
	}
	return found, err
}

// alone reports whether a volume may be an orphan, whatever PersistentVolumes say: one that is young may be waiting for
// its own.
func (s *Server) alone(v nodeapi.VolumeStatus) bool {
	return !v.Created.After(s.Now().Add(-s.OrphanAge)) && !(v.Ephemeral && v.Published)
}

// orphaned is the kind of orphan that a volume is on a node, "" for none. A PersistentVolume that is not there is the
// zero one. What is in a shared pool, every node has, whichever the PersistentVolume names.
func (s *Server) orphaned(v nodeapi.VolumeStatus, pv nodeapi.PersistentVolume, node string) string {
	switch {
	case v.Ephemeral, pv.Handle == "":
		return unnamed
	case len(pv.Nodes) > 0 && !slices.Contains(pv.Nodes, node) && !s.Shared.Everywhere(v.Pool):
		return elsewhere
	default:
		return ""
	}
}

// Kinds of orphans.
const (
	unnamed   = "unnamed"
	elsewhere = "elsewhere"
)
