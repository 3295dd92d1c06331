package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

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

// Forget drops what is known of a node without a Node object, but for its name: a volume may be there until it counts
// as lost.
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
