package fleet

import (
	"context"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Rollout is about nodes whose driver is of a version without a controller.
type Rollout interface {
	// HasTunnel is false for such a node.
	HasTunnel(ctx context.Context, name string) (bool, error)
	// RemoveOldCapacity removes what such drivers have published for nodes that are connected now, and gives how much
	// there was, of all nodes.
	RemoveOldCapacity(ctx context.Context, connected func(node string) bool) (found int, err error)
}

const (
	oldCapacityInterval = time.Hour
	oldCapacityTimeout  = time.Minute
)

// removeOldCapacity gives the time when it is to be done again, zero for never: once none is left, none comes.
func (f *Fleet) removeOldCapacity(ctx context.Context, due time.Time) (next time.Time) {
	now := f.Now()
	if due.IsZero() || now.Before(due) {
		return due
	}
	brief, cancel := context.WithTimeout(ctx, oldCapacityTimeout)
	defer cancel()
	found, err := f.RemoveOldCapacity(brief, func(node string) bool { return f.Get(node) != nil })
	if err != nil && ctx.Err() == nil {
		f.Log.WarnContext(ctx, "cannot remove capacity that a driver without controller has published",
			logging.KeyError, err)
	}
	if err == nil && found == 0 {
		return time.Time{}
	}
	return now.Add(oldCapacityInterval)
}
