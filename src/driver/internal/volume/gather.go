package volume

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// gathered makes all of a volume's data count to it: that in a directory which was put back by hand does not yet. That may be many files,
// for which the other volumes must not wait: the pool is released meanwhile, and opened anew, so that nothing known before still holds.
func (m *Manager) gathered(ctx context.Context, l located) (located, error) {
	backend := l.pool.Backend()
	poolfs.Release(l.disk)
	err := backend.Gather(ctx, l.disk, l.ID, l.Record)
	if err == nil {
		m.tellGathered(backend, l)
	}
	l.Close()
	if err != nil {
		return located{}, err
	}
	return m.lookIn(context.WithoutCancel(ctx), l.pool, l.ID, only)
}

// tellGathered says what such a volume holds.
func (m *Manager) tellGathered(backend Backend, l located) {
	stats, err := backend.Stats(l.disk, l.ID, l.Record)
	if err != nil {
		m.Log.Warn("cannot see what a volume that was put back holds", logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyError, err)
		return
	}
	m.Log.Info("counted the content of a volume that was put back",
		logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyBytes, stats.BytesUsed, logging.KeyInodes, stats.InodesUsed)
	m.tellOverLimit(l, stats)
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
