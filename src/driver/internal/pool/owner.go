package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// ErrOtherCluster refuses to take a pool from a cluster that it does not belong to.
var ErrOtherCluster = errors.New("pool is of another cluster")

// owner is this cluster, as the controller says it, or has said it; "" where that is not known.
func (p *Pool) owner() string {
	return cmp.Or(p.expected().Owner, p.set.remembered(p.spec.Name).Owner)
}

// openOwn is guard.Open for a pool that is not another cluster's now.
func (p *Pool) openOwn(id string) (disk.FS, *guard.Marker, error) {
	d, m, err := guard.Open(p.host, p.spec.Path, id)
	if err == nil && p.shared() && m.IsForeign(p.owner()) {
		return nil, nil, errors.Join(ErrOtherCluster, d.Close())
	}
	return d, m, err
}

// owned reports whether what is deleted in a pool may go for good. Of a shared one the controller must have said that:
// what this node remembers may be of a cluster that it was in before, which kept it for longer.
func (p *Pool) owned(o *Open) bool {
	ours := p.expected().Owner
	return !p.shared() || p.set.Alone || (ours != "" && o.marker.Owner == ours)
}

// own notes in the marker of an open shared pool which cluster it belongs to, where no driver has yet.
func (p *Pool) own(o *Open) {
	expected := p.expected()
	if !p.shared() || expected.Owner == "" || expected.ID != o.marker.ID || p.known().space.ReadOnly {
		return
	}
	err := p.note(o.marker.ID)
	if o.marker.Owner == "" && err == nil {
		err = stampOwner(o.Disk, expected)
	}
	if err != nil {
		p.log.Warn("cannot note which cluster a shared pool belongs to", logging.KeyError, err)
	}
}

// stampOwner writes the owner into a marker that names none.
func stampOwner(d disk.FS, expected guard.Expected) error {
	m, err := guard.ReadMarker(d)
	if err != nil || m == nil || m.ID != expected.ID || m.Owner != "" {
		return err
	}
	m.Owner = expected.Owner
	return m.Write(d, disk.ReplaceFile)
}

// Take makes a shared pool this cluster's that belongs to another, which is gone: from is that one.
func (s *Set) Take(ctx context.Context, name, from string) error {
	p := s.find(name)
	switch {
	case p == nil:
		return fmt.Errorf("%w: storagePool %q; configured are: %s", ErrUnknown, name, s.names())
	case !p.shared():
		return fmt.Errorf("%w: pool %s has scope node, and belongs to its node", ErrPresent, name)
	case p.expected().Owner == "":
		return fmt.Errorf("%w: pool %s: the controller has not said yet which cluster this is; see that this node is "+
			"connected to it", ErrAbsent, name)
	}
	err := p.take(from)
	p.Check(ctx)
	return err
}

func (p *Pool) take(from string) (err error) {
	p.use.Lock()
	defer p.use.Unlock()
	d, err := p.host.Open(p.spec.Path)
	if err != nil {
		return fmt.Errorf("%w: pool %s: %w", ErrAbsent, p.spec.Name, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := guard.ReadMarker(d)
	ours := p.expected().Owner
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s/csi/%s cannot be used: %w", ErrAbsent, p.spec.Path, disk.MarkerFile, err)
	case m == nil:
		return fmt.Errorf("%w: %s holds no csi/%s: mount the pool's filesystem", ErrAbsent, p.spec.Path,
			disk.MarkerFile)
	case !m.IsForeign(ours):
		return fmt.Errorf("%w: pool %s belongs to no other cluster; this one is %s", ErrPresent, p.spec.Name, ours)
	case m.Owner != from:
		return fmt.Errorf("%w: pool %s belongs to %s, not to %.64q; if that cluster is gone: kubectl hpp pool "+
			"take %s --from %s --node NODE", ErrOtherCluster, p.spec.Name, m.Owner, from, p.spec.Name, m.Owner)
	}
	m.Owner = ours
	// Where this node writes before the file has its name.
	if err := d.Mkdir(disk.StagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := m.Write(d, disk.ReplaceFile); err != nil {
		return err
	}
	p.log.Warn("a shared pool was taken from another cluster", logging.KeyOwner, from)
	return nil
}
