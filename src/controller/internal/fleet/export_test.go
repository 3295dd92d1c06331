package fleet

import (
	"maps"
	"slices"
	"time"
)

// SetLoginTimeout sets how long somebody has to show who it is, before Serve.
func (f *Fleet) SetLoginTimeout(d time.Duration) { f.loginTimeout = d }

// RetryAfter sets after what pause a renewed token is reviewed again, before Serve.
func (f *Fleet) RetryAfter(d time.Duration) { f.retry = d }

// Unauthenticated is how many connections have not shown who they are.
func (f *Fleet) Unauthenticated() int { return f.unauthenticated.Count() }

// Left are the nodes that were connected, and are not any more.
func (f *Fleet) Left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.left))
}
