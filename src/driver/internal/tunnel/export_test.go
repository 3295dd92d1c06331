package tunnel

import (
	"context"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// SetPatience sets how long a stranger has, before Serve.
func (h *Hub) SetPatience(d time.Duration) { h.patience = d }

// RenewEvery sets how often a renewed token is looked for, before Run.
func (n *Node) RenewEvery(d time.Duration) { n.renewal = d }

// RetryAfter sets after what pause a renewed token is reviewed again, before Serve.
func (h *Hub) RetryAfter(d time.Duration) { h.retry = d }

// PauseFor sets the pause between connections, before Run.
func (n *Node) PauseFor(d time.Duration) { n.pause = wait.Backoff{Duration: d} }

// LookUp sets how addresses are found, before Run.
func (n *Node) LookUp(lookup func(ctx context.Context, host string) ([]string, error)) {
	n.lookup = lookup
}

// ResolveEvery sets how often addresses are looked up, before Run.
func (n *Node) ResolveEvery(d time.Duration) { n.resolve, n.soon = d, d }

// NewSingle is a listener of one connection.
func NewSingle(conn net.Conn) net.Listener { return newSingle(conn) }

// Strangers is how many connections have not shown who they are.
func (h *Hub) Strangers() int {
	h.strangers.mu.Lock()
	defer h.strangers.mu.Unlock()
	return h.strangers.count
}
