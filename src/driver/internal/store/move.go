package store

import (
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// Leaving is a move of a volume to another node.
type Leaving struct {
	To   string `json:"to"`   // the node
	Move string `json:"move"` // which move it is: the same text as in Source.Move of the copy there
}

// MarkLeaving makes it durable that a volume is being moved, or with nil that it is not.
func (p Pool) MarkLeaving(r Record, move *Leaving) error {
	switch {
	case r.Leaving == nil && move == nil:
		return disk.SyncAll(p.Disk, disk.VolumesDir)
	case r.Leaving != nil && move != nil && *r.Leaving == *move: // an earlier request may have failed at its last step
		return disk.SyncAll(p.Disk, disk.VolumesDir)
	}
	r.Leaving = move
	return Replace(p.Disk, r)
}

// KeepInTrash makes it durable for how long a volume is in the trash at least once it is deleted.
func (p Pool) KeepInTrash(r Record, keep time.Duration) (Record, error) {
	r.Keep = int64(keep / time.Second)
	return r, Replace(p.Disk, r)
}

// Returned makes a record that of a volume which is back from the trash, and stays, or gives it as it is.
func (p Pool) Returned(r Record) (Record, error) {
	if r.Keep == 0 && r.Leaving == nil && !r.Returning {
		return r, nil
	}
	r.Enforcing = r.Enforcing || r.Returning && r.QuotaID != 0
	r.Keep, r.Leaving, r.Returning = 0, nil, false
	return r, Replace(p.Disk, r)
}
