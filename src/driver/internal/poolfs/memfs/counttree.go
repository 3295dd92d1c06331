package memfs

import (
	"context"
	"io/fs"
)

// CountTree implements poolfs.Quotas.
func (f *dir) CountTree(ctx context.Context, name string, number uint32) error {
	err := f.within("count", name, func(parent *node, last, path string) error {
		n, err := f.openedDir("count", path, parent, last)
		if err != nil || n.on.kind == "btrfs" {
			return err
		}
		if err := f.disk.countBelow(ctx, n, path, number); err != nil {
			return err
		}
		return f.disk.syncAll(n.on, path)
	})
	if err != nil {
		return err
	}
	return f.Count(name, number)
}

func (d *Disk) countBelow(ctx context.Context, dir *node, path string, number uint32) error {
	for name, n := range dir.now.entries {
		below := path + "/" + name
		if n.kind == fs.ModeSymlink || len(d.mounts[n]) > 0 {
			continue
		}
		if n.now.account != number {
			if err := d.step("count", below, n.on); err != nil {
				return err
			}
			n.now.account = number
		}
		if err := d.countBelow(ctx, n, below, number); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// syncAll is syncfs(2).
func (d *Disk) syncAll(dev *device, path string) error {
	if err := d.step("sync", path, dev); err != nil {
		return err
	}
	d.commit(dev)
	dev.limits = newLimits(dev.limits.now)
	return nil
}
