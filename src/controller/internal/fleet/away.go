package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// watchInterval is how often absences are looked at.
	watchInterval = 5 * time.Second
	syncInterval  = 100 * time.Millisecond
)

// Ready is nil once calls are to be made. At the start they would be answered wrongly until the nodes are there; those
// that do not come are waited for as long as their grace.
func (f *Fleet) Ready() error {
	if !f.Synced() {
		return errors.New("waiting for the Kubernetes API")
	}
	if f.Now().Sub(f.start) >= f.NodeGrace {
		return nil
	}
	for _, node := range f.NodesWithDriver(nil) {
		if f.Get(node) == nil {
			return fmt.Errorf("waiting for node %s to connect", node)
		}
	}
	return nil
}

// Every does something after each interval until ctx ends, from when the cluster's nodes and volumes are known: what is
// asked for before is not.
func (f *Fleet) Every(ctx context.Context, interval time.Duration, do func()) {
	for pause := syncInterval; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if pause == interval {
			do()
		} else if f.Synced() {
			pause = interval
		}
	}
}

// Away is for how long a node that is not connected has been away, as far as this process knows: since it left, or
// since the start. One that is asked about for the first time later is new.
func (f *Fleet) Away(node string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Now()
	if left, ok := f.left[node]; ok {
		return now.Sub(left)
	}
	if _, ok := f.awaited[node]; !ok {
		f.awaited[node] = f.start
		if now.Sub(f.start) >= f.NodeGrace {
			f.awaited[node] = now
		}
	}
	return now.Sub(f.awaited[node])
}

// IsGone reports whether a node has been without a Node object for long enough.
func (f *Fleet) IsGone(ctx context.Context, node string) (bool, error) {
	since, gone, err := f.NodeGone(ctx, node)
	return err == nil && gone && f.Now().Sub(since) >= f.GoneAfter, err
}

// Forget drops what is known of a node without a Node object, but for its name: a volume may be there until it counts
// as lost. It has to log in again, which a token can no longer once Kubernetes has removed its pod.
func (f *Fleet) Forget(node string) {
	if p := f.Get(node); p != nil {
		p.Close(errors.New("its Node object was deleted"))
	}
	f.metrics.calls.DeletePartialMatch(prometheus.Labels{"node": node})
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Now()
	maps.DeleteFunc(f.gone, func(_ string, since time.Time) bool { return now.Sub(since) >= f.GoneAfter })
	f.gone[node] = now
	delete(f.left, node)
	delete(f.awaited, node)
}

// Run looks after nodes that are away until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	missed := map[string]bool{}
	f.Every(ctx, watchInterval, func() { f.reportAbsences(missed) })
}

// reportAbsences reports nodes that are away for longer than their grace, and those of them that are back; missed are
// those that were reported.
func (f *Fleet) reportAbsences(missed map[string]bool) {
	names := f.Names()
	maps.DeleteFunc(missed, func(node string, _ bool) bool { return !slices.Contains(names, node) })
	for _, node := range names {
		switch connected := f.Get(node) != nil; {
		case connected && missed[node]:
			f.TellNode(node, "Normal", "NodeConnected", "the driver of this node is connected to the controller again")
			delete(missed, node)
		case !connected && !missed[node]:
			missed[node] = f.reportAway(node)
		}
	}
}

// reportAway reports a node, unless its grace is not over.
func (f *Fleet) reportAway(node string) bool {
	away := f.Away(node)
	if away < f.NodeGrace {
		return false
	}
	f.TellNode(node, "Warning", "NodeNotConnected", fmt.Sprintf("the driver of this node has not been connected to "+
		"the controller for %s: no volumes are made, grown or deleted here; those that are there stay usable",
		away.Round(time.Second)))
	return true
}
