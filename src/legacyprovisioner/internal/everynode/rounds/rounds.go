// Package rounds does a piece of work over all objects of an informer again whenever one of them has changed.
package rounds

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	// settle is how long changes are collected before the next round.
	settle = 100 * time.Millisecond
	// retry is the pause after a round that did not do all of its work.
	retry = 10 * time.Second
)

// Rounds knows whether something has changed since the last round.
type Rounds struct {
	informer cache.SharedInformer
	changed  chan struct{}
}

// On follows an informer, which the caller starts.
func On(informer cache.SharedInformer) (*Rounds, error) {
	r := &Rounds{informer: informer, changed: make(chan struct{}, 1)}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.notice() },
		UpdateFunc: func(any, any) { r.notice() },
	}); err != nil {
		return nil, fmt.Errorf("follow what is watched: %w", err)
	}
	return r, nil
}

func (r *Rounds) notice() {
	select {
	case r.changed <- struct{}{}:
	default: // a round is due already
	}
}

// Run does rounds until ctx ends: one when everything is read, one after changes, one some time after a round that did
// not do all of its work.
func (r *Rounds) Run(ctx context.Context, round func(context.Context) (done bool)) {
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		return
	}
	for {
		var again <-chan time.Time
		if !round(ctx) {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-r.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		select {
		case <-r.changed: // the round sees this too
		default:
		}
	}
}
