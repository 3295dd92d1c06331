package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// LookDirectory says whether a directory of the node can become a volume of a pool, and changes nothing. What is wrong
// with the directory is no error.
func (m *Manager) LookDirectory(ctx context.Context, in, p string) (found nodeapi.Directory, err error) {
	found.Pool, found.Path = in, p
	if err := m.checkPath(in, p); err != nil {
		if errors.Is(err, pool.ErrUnknown) || errors.Is(err, ErrUnsupported) {
			return found, err
		}
		found.Problems = append(found.Problems, err.Error())
		return found, nil
	}
	d, err := m.Paths.OpenDir(p)
	if errors.Is(err, fs.ErrNotExist) {
		found.Problems = append(found.Problems, fmt.Sprintf("there is no directory %s on this node", p))
		return found, nil
	}
	if err != nil {
		found.Problems = append(found.Problems,
			fmt.Sprintf("%s is no directory that is reached without links: %v", p, err))
		return found, nil
	}
	defer func() { _ = d.Close() }()
	found.Exists = true
	problem := func(err error) {
		if err != nil {
			found.Problems = append(found.Problems, err.Error())
		}
	}
	problem(m.lookAtUse(d, &found))
	err = m.Pools.Use(ctx, in, func(o *pool.Open) error {
		problem(m.lookFrom(o, &found))
		return nil
	})
	if err != nil {
		return found, err
	}
	if facts, err := m.Paths.Inspect(p); err == nil {
		found.FSType = facts.FSType
	}
	size, err := m.measure(ctx, p)
	problem(err)
	found.Files, found.Bytes, found.Partial = size.Files, size.Bytes, size.Partial
	return found, nil
}

// lookFrom compares a directory with the pool.
func (m *Manager) lookFrom(o *pool.Open, found *nodeapi.Directory) error {
	found.EnforcementReason = unenforceable(o)
	found.Enforceable = found.EnforcementReason == ""
	b, err := m.between(o, found.Path)
	if err != nil {
		return err
	}
	defer b.close()
	found.SameMount, err = b.joined()
	if err == nil && !found.SameMount {
		err = fmt.Errorf("%s is not on the mount of pool %s, or on another subvolume of it: it cannot be renamed",
			found.Path, o.Name)
	}
	return err
}

func (m *Manager) lookAtUse(d disk.FS, found *nodeapi.Directory) error {
	h, err := d.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	use, err := m.Node.Uses(h, found.Path)
	found.MountInside, found.UsedAt = use.Inside, cmp.Or(use.At, use.Above)
	switch {
	case err != nil:
	case use.Inside != "":
		err = fmt.Errorf("something is mounted in %s, at %s", found.Path, use.Inside)
	case use.Above != "":
		err = above(found.Path, use)
	}
	return err
}
