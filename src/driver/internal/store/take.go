package store

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
)

// Tagging reports whether the files of a volume are being made part of its ID, or taken out of it.
func (r Record) Tagging() bool { return r.Enforcing || r.Returning }

// Take makes a volume of a directory that lies elsewhere: a prepared record, the directory, and the record in its
// place, each durable before the next. move moves the directory to csi/<id>, durably. With an ID the volume gets one
// that nothing counts to yet. What an error or a crash leaves is a prepared record, with the directory where it was, or
// in csi/: FinishTake ends the latter.
func (p Pool) Take(r Record, withID bool, move func() error) (Record, error) {
	claim := func(id quota.ID) error {
		r.QuotaID = id
		if err := Prepare(p.Disk, r); err != nil {
			return err
		}
		return p.Disk.Sync(disk.VolumesDir)
	}
	var err error
	if withID {
		_, err = p.Backend.NewID(p.Disk, claim)
	} else {
		err = claim(0)
	}
	if err == nil {
		err = move()
	}
	if err == nil {
		return r, p.FinishTake(r.ID)
	}
	if _, moved, look := Directory(p.Disk, r.ID); look == nil && !moved {
		err = errors.Join(err, Forget(p.Disk, r.ID))
	}
	return r, err
}

// FinishTake places the record of a directory that Take has moved.
func (p Pool) FinishTake(id string) error {
	if err := Place(p.Disk, id); err != nil {
		return err
	}
	return p.Disk.Sync(disk.VolumesDir)
}

// Return is the reverse of Take, of a volume nothing of which counts to an ID. It can be repeated for what an error or
// a crash leaves: then the record is a prepared one.
func (p Pool) Return(id string, placed bool, move func() error) error {
	if placed {
		if err := Withdraw(p.Disk, id); err != nil {
			return err
		}
	}
	if err := move(); err != nil {
		return fmt.Errorf("move volume %s back: %w", id, err)
	}
	return p.DropTaken(id)
}

// DropTaken removes the prepared record of a directory that is where it was.
func (p Pool) DropTaken(id string) error {
	err := p.dropPrepared(id)
	if errors.Is(err, syscall.EBUSY) { // nobody gets an ID that something counts to
		err = Forget(p.Disk, id)
	}
	if err != nil {
		return err
	}
	return p.Disk.Sync(disk.VolumesDir)
}
