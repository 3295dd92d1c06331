package memfs

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// lost is that a filesystem with full qgroups has lost count: accounts stay as they were, and nothing is held to a limit.
type lost struct {
	frozen map[uint32]poolfs.Account
	anew   bool // everything is being counted again, from 0
}

// shown is what the accounts of a filesystem seem to hold.
func (d *Disk) shown(dev *device) map[uint32]poolfs.Account {
	switch {
	case dev.lost == nil:
		return d.usage(dev).by
	case dev.lost.anew:
		return nil
	default:
		return dev.lost.frozen
	}
}

// LoseCount lets the filesystem of a path, which has full qgroups, lose count, as btrfs does where somebody takes a snapshot.
func (d *Disk) LoseCount(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev := d.filesystem(p)
	if dev.quota != poolfs.QuotaFull {
		panic("memfs: only full qgroups lose count")
	}
	dev.lost = &lost{frozen: d.usage(dev).by}
}

// FinishRecount ends the count that Recount started.
func (d *Disk) FinishRecount(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev := d.filesystem(p)
	if dev.lost == nil || !dev.lost.anew {
		panic("memfs: nothing is being counted again")
	}
	dev.lost = nil
}

// Counts implements poolfs.Quotas.
func (f *dir) Counts() (counts poolfs.Counts, err error) {
	err = f.within("counts", ".", func(*node, string, string) error {
		switch lost := f.node.on.lost; {
		case lost == nil:
			counts = poolfs.CountsRight
		case lost.anew:
			counts = poolfs.CountsAnew
		default:
			counts = poolfs.CountsWrong
		}
		return nil
	})
	return counts, err
}

// Recount implements poolfs.Quotas.
func (f *dir) Recount() error {
	return f.within("recount", ".", func(_ *node, _, path string) error {
		if f.node.on.lost == nil || f.node.on.lost.anew {
			return nil
		}
		if err := f.disk.step("recount", path, f.node.on); err != nil {
			return err
		}
		f.node.on.lost = &lost{anew: true}
		return nil
	})
}
