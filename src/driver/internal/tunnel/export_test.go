package tunnel

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// RenewEvery sets how often a renewed token is looked for, before Run.
func (n *Node) RenewEvery(d time.Duration) { n.renewal = d }

// PauseFor sets the pause between connections, before Run.
func (n *Node) PauseFor(d time.Duration) { n.pause = wait.Backoff{Duration: d} }

// LookUp sets how addresses are found, before Run.
func (n *Node) LookUp(lookup func(ctx context.Context, host string) ([]string, error)) {
	n.lookup = lookup
}

// ResolveEvery sets how often addresses are looked up, before Run.
func (n *Node) ResolveEvery(d time.Duration) { n.resolve, n.soon = d, d }
