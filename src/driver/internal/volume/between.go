package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
)

// between is the directory of the node that has both a pool and a directory outside of it, so that one can be renamed
// into the other without leaving a mount.
type between struct {
	disk.FS
	csi, outside string // in it
}

func (b *between) close() { _ = b.Close() } // it was open for reading

// between opens it. It is refused where the way to the pool is not the one on which the pool was opened.
func (m *Manager) between(o *pool.Open, outside string) (*between, error) {
	csi := path.Join(m.Pools.Spec(o.Name).Path, "csi")
	above := path.Dir(csi)
	for above != "/" && !strings.HasPrefix(outside, above+"/") {
		above = path.Dir(above)
	}
	relative := func(p string) string { return strings.TrimPrefix(strings.TrimPrefix(p, above), "/") }
	d, err := m.Paths.OpenDir(above)
	if err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", hostdir.ErrRefused, above, err)
	}
	b := &between{d, relative(csi), relative(outside)}
	is, err := b.Stat(b.csi)
	own, ownErr := o.Disk.Stat(".")
	if err = errors.Join(err, ownErr); err == nil && !is.Same(own) {
		err = errors.New("that is another directory now")
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("%w: come to pool %s by %s, without links: %w", hostdir.ErrRefused, o.Name, csi, err)
	}
	return b, nil
}

// mayGo refuses a directory that cannot be renamed into the pool now.
func (b *between) mayGo(n hostdir.Node, p string) (info disk.Info, err error) {
	info, err = b.Stat(b.outside)
	if err == nil && !info.Mode.IsDir() {
		err = fmt.Errorf("it is no directory (%s)", info.Mode.Type())
	}
	if err != nil {
		return info, fmt.Errorf("%w: %s: %w", hostdir.ErrRefused, p, err)
	}
	h, err := b.Open(b.outside)
	if err != nil {
		return info, fmt.Errorf("%w: %s: %w", hostdir.ErrRefused, p, err)
	}
	defer func() { _ = h.Close() }()
	use, err := n.Uses(h, p)
	switch {
	case err != nil:
		return info, err
	case use.Inside != "":
		return info, fmt.Errorf("%w: something is mounted in it, at %s", hostdir.ErrRefused, use.Inside)
	case use.At != "":
		return info, fmt.Errorf("%w: %s is mounted at %s: end what uses it first", ErrPublished, p, use.At)
	case use.Above != "":
		return info, fmt.Errorf("%w: %w", ErrPublished, above(p, use))
	}
	return info, nil
}

// above says that somebody sees a directory from above it, who would lose it.
func above(p string, use hostdir.Use) error {
	return fmt.Errorf("a directory that %s is in is mounted at %s: end what has it mounted first", p, use.Above)
}

// move renames a directory, durably. Where it is already, it only makes that durable.
func (b *between) move(from, to string) error {
	err := b.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := b.Stat(to); there == nil {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return disk.SyncAll(b.FS, path.Dir(to), path.Dir(from))
}

// joined reports whether a directory outside can be renamed into the pool: both are on one mount, and on one subvolume.
func (b *between) joined() (bool, error) {
	var ids, devices [2]uint64
	for i, name := range []string{b.csi, path.Dir(b.outside)} {
		h, err := b.Open(name)
		if err == nil {
			devices[i] = h.Dev
			ids[i], err = hostdir.MountID(h)
			err = errors.Join(err, h.Close())
		}
		if errors.Is(err, syscall.EXDEV) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return ids[0] == ids[1] && devices[0] == devices[1], nil
}
