// Package store is one volume's files, and the order of steps that survives a crash. It alone knows the format of
// records, the layout of staging and trash, and who wins where nodes share a pool. What is on the disk of an id is
// surveyed, a verdict follows from that alone, and is applied (docs/development/on-disk.md).
package store

import (
	"log/slog"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
)

// Pool is an open pool. Calls for one id must not overlap, but for those of other nodes that share the pool.
type Pool struct {
	Disk    disk.FS
	Limits  quota.Limits
	Backend quota.Backend
	// ReadOnly reports that the filesystem is: then recovery only reads.
	ReadOnly bool
	Log      *slog.Logger // with the pool's name
	// NoteLeftover notes that the limit of an interrupted create could not be removed: the pool tries that again.
	NoteLeftover func()
}

// Shared reports whether other nodes work on the pool as well.
func (p Pool) Shared() bool { return disk.IsShared(p.Disk) }

// syncMoved makes a move durable, the new name before the old one is gone.
func syncMoved(d disk.FS, to, from string) error {
	if disk.Journaled(d) { // which has both at once
		return d.Sync(to)
	}
	return disk.SyncAll(d, to, from)
}
