package controller

import (
	"context"
	"sync"
	"time"
)

const (
	// explainInterval is how often claims that wait are looked at, orphanInterval how often all nodes are asked for
	// their volumes.
	explainInterval = 5 * time.Second
	orphanInterval  = time.Hour
	// searchPause is how soon a node that has connected again is asked again; the hourly search asks it in any case.
	searchPause = time.Minute
	// maxUnnamed is how many volumes of one node, which no known PersistentVolume names, the API is asked about at a
	// time.
	maxUnnamed = 1000
	// searchers is how many nodes are asked at once.
	searchers = 16
	// askTimeout bounds what one node is asked for.
	askTimeout = time.Minute
)

// Forget drops what is known of a node without a Node object.
func (s *Server) Forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found, node)
	delete(s.searched, node)
}

// Run looks after claims that wait, and what nobody names, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	s.Fleet.AwaitSync(ctx)
	var searching sync.WaitGroup
	defer searching.Wait()
	searching.Go(func() { s.searchAll(ctx) })
	tick := time.NewTicker(explainInterval)
	defer tick.Stop()
	told := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			told = s.explain(told)
		}
	}
}
