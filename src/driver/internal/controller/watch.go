package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// watchInterval is how often absences are looked at, orphanInterval how often all nodes are asked for their volumes.
	watchInterval  = 5 * time.Second
	orphanInterval = time.Hour
	syncInterval   = 100 * time.Millisecond
	// searchPause is how soon a node that has connected again is asked again; the hourly search asks it in any case.
	searchPause = time.Minute
	// maxUnnamed is how many volumes of one node, which no known PersistentVolume names, the API is asked about at a time.
	maxUnnamed = 1000
	// searchers is how many nodes are asked at once.
	searchers = 16
	// askTimeout bounds what one node is asked for.
	askTimeout = time.Minute
)

// Changed takes note of a node that has come or gone.
func (s *Server) Changed(node string, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !connected {
		s.left[node] = s.Now()
		return
	}
	delete(s.left, node)
	delete(s.awaited, node)
	delete(s.gone, node)
	time.AfterFunc(s.Settling, func() {
		select {
		case s.arrived <- node:
		default: // the hourly search finds it
		}
	})
}

// Forget drops what is known of a node without a Node object, but for its name: a volume may be there until it counts as
// lost.
func (s *Server) Forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	maps.DeleteFunc(s.gone, func(_ string, since time.Time) bool { return now.Sub(since) >= s.GoneAfter })
	s.gone[node] = now
	delete(s.left, node)
	delete(s.awaited, node)
	delete(s.found, node)
	delete(s.missed, node)
	delete(s.searched, node)
	s.hub.Forget(node)
}

// Run looks after nodes that are away, and after what nobody names, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	for !s.Members.Synced() && ctx.Err() == nil { // what is asked for before is not known
		time.Sleep(syncInterval)
	}
	var searching sync.WaitGroup
	defer searching.Wait()
	searching.Go(func() { s.searchAll(ctx) })
	searching.Go(func() { s.shareAll(ctx) })
	watch := time.NewTicker(watchInterval)
	defer watch.Stop()
	capacity := s.start.Add(s.NodeGrace)
	told := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch.C:
			s.miss(ctx)
			told = s.explain(told)
			if now := s.Now(); !capacity.IsZero() && !now.Before(capacity) {
				capacity = s.removeOldCapacity(ctx, now)
			}
		}
	}
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
		case node := <-s.arrived:
			for nodes = []string{node}; len(s.arrived) > 0; {
				nodes = append(nodes, <-s.arrived)
			}
			nodes = slices.DeleteFunc(nodes, s.searchedJustNow)
		case <-hourly.C:
			for _, p := range s.hub.All() {
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

// miss reports nodes that are away for longer than their grace, and those of them that are back.
func (s *Server) miss(ctx context.Context) {
	for _, node := range s.names() {
		connected := s.hub.Get(node) != nil
		s.mu.Lock()
		news := s.missed[node] == connected
		s.mu.Unlock()
		if !news {
			continue
		}
		if connected {
			s.Events.TellNode(node, "Normal", "NodeConnected", "the driver of this node is connected to the controller again")
		} else if !s.reportAway(ctx, node) {
			continue
		}
		s.mu.Lock()
		s.missed[node] = !connected
		s.mu.Unlock()
	}
}

// reportAway reports a node, unless its grace is not over, or it makes volumes by itself until its pod is replaced.
func (s *Server) reportAway(ctx context.Context, node string) bool {
	away := s.away(node)
	if away < s.NodeGrace {
		return false
	}
	if has, err := s.Members.HasTunnel(ctx, node); err != nil || !has {
		return false
	}
	s.Events.TellNode(node, "Warning", "NodeNotConnected", fmt.Sprintf("the driver of this node has not been connected "+
		"to the controller for %s: no volumes are made, grown or deleted here; those that are there stay usable",
		away.Round(time.Second)))
	return true
}

// removeOldCapacity gives the time when it is to be done again, zero for never: once none is left, none comes.
func (s *Server) removeOldCapacity(ctx context.Context, now time.Time) (next time.Time) {
	brief, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := s.RemoveOldCapacity(brief, func(node string) bool { return s.hub.Get(node) != nil })
	if err != nil && ctx.Err() == nil {
		s.Log.WarnContext(ctx, "cannot remove capacity that a driver without controller has published",
			logging.KeyError, err)
	}
	if err == nil && found == 0 {
		return time.Time{}
	}
	return now.Add(orphanInterval)
}

// orphans are those of one pool on one node.
type orphans struct {
	unnamed, elsewhere []string
}

// searchNode looks among a node's volumes for those that no PersistentVolume names, or one of another node, and for
// inline volumes that no pod has mounted: one whose pod ended while its pool was absent. They are reported, and never
// removed for that.
func (s *Server) searchNode(ctx context.Context, node string) {
	p := s.hub.Get(node)
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
		logging.KeyVolumes, guard.Abridge(ids))
	s.Events.TellNode(node, "Warning", reason, fmt.Sprintf("pool %s: %s: %s", name, why, guard.Abridge(ids)))
}

func (s *Server) searchPeer(ctx context.Context, p *tunnel.Peer) (map[string]orphans, error) {
	found, asked := map[string]orphans{}, 0
	err := p.Volumes(ctx, func(v *wire.Volume) error {
		if !s.speaksFor(p, v.GetPool()) {
			return nil
		}
		f := found[v.GetPool()]
		defer func() { found[v.GetPool()] = f }() // none, too: that is a figure
		if !s.alone(v) {
			return nil
		}
		if len(s.PVs.Known(v.GetId())) == 0 {
			if asked++; asked > maxUnnamed {
				return nil
			}
		}
		pv, _, err := s.PVs.Get(ctx, v.GetId())
		if errors.Is(err, volume.ErrNamed) { // by more than one
			return nil
		}
		if err != nil {
			return err
		}
		switch s.orphaned(v, pv, p.Name) {
		case unnamed:
			f.unnamed = append(f.unnamed, v.GetId())
		case elsewhere:
			f.elsewhere = append(f.elsewhere, fmt.Sprintf("%s (node %s)", v.GetId(), guard.Abridge(pv.Nodes)))
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

// Kinds of orphans.
const (
	unnamed   = "unnamed"
	elsewhere = "elsewhere"
)

// alone reports whether a volume may be an orphan, whatever PersistentVolumes say: one that is young may be waiting for
// its own.
func (s *Server) alone(v *wire.Volume) bool {
	return v.GetCreated() <= s.Now().Add(-s.OrphanAge).Unix() && !(v.GetEphemeral() && v.GetPublished())
}

// orphaned is the kind of orphan that a volume is on a node, "" for none. A PersistentVolume that is not there is the
// zero one. What is in a shared pool, every node has, whichever the PersistentVolume names.
func (s *Server) orphaned(v *wire.Volume, pv pool.PersistentVolume, node string) string {
	switch {
	case v.GetEphemeral(), pv.Handle == "":
		return unnamed
	case len(pv.Nodes) > 0 && !slices.Contains(pv.Nodes, node) && !s.shared(v.GetPool()):
		return elsewhere
	default:
		return ""
	}
}
