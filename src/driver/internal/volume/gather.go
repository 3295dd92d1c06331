package volume

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// gathered sees to it that all of a volume's data counts to it before a pod writes: that in a directory which was put back by hand does
// not yet.
func (m *Manager) gathered(ctx context.Context, l located) error {
	gathered, err := l.pool.Backend().Gather(ctx, l.disk, l.ID, l.Record)
	if err != nil || !gathered {
		return err
	}
	stats, err := l.pool.Backend().Stats(l.disk, l.ID, l.Record)
	if err != nil {
		m.Log.Warn("cannot see what a volume that was put back holds", logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyError, err)
		return nil
	}
	m.Log.Info("counted the content of a volume that was put back",
		logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyBytes, stats.BytesUsed, logging.KeyInodes, stats.InodesUsed)
	m.tellOverLimit(l, stats)
	return nil
}

// tellOverLimit says that a volume holds more than its size, where it does.
func (m *Manager) tellOverLimit(l located, s Stats) {
	var over string
	switch {
	case s.BytesUsed > l.Bytes:
		over = fmt.Sprintf("holds %d bytes and may hold %d", s.BytesUsed, l.Bytes)
	case l.Inodes > 0 && s.InodesUsed > l.Inodes:
		over = fmt.Sprintf("holds %d files and may hold %d", s.InodesUsed, l.Inodes)
	default:
		return
	}
	m.Log.Warn("a volume is over its limit", logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyReason, over)
	if l.Claim.Name != "" {
		m.Cluster.Tell(l.Claim, "VolumeOverLimit", fmt.Sprintf("volume %s was put back and %s: nothing more can be written until enough is removed, or the claim is large enough", l.ID, over))
	}
}
