package pool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// afterSilence is how soon the Kubernetes API is asked again when it did not answer.
const afterSilence = 5 * time.Second

// known is the last answer of the Kubernetes API: pools that cannot be used are looked at every few seconds and at every call,
// and must not list all PersistentVolumes each time.
type known struct {
	mu  sync.Mutex
	at  time.Time
	pvs []volume.PersistentVolume
	err error
}

// volumes lists the PersistentVolumes of this node, as they were at most askAgain ago.
func (s *Set) volumes(ctx context.Context) ([]volume.PersistentVolume, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	old := s.Now().Sub(s.known.at)
	if old < afterSilence || (old < askAgain && s.known.err == nil) {
		return s.known.pvs, s.known.err
	}
	s.known.pvs, s.known.err = s.Cluster.Volumes(ctx)
	s.known.at = s.Now()
	return s.known.pvs, s.known.err
}

// wanted lists the volumes that PersistentVolumes of this node place in the pool.
func (p *Pool) wanted(ctx context.Context) ([]volume.PersistentVolume, error) {
	pvs, err := p.set.volumes(ctx)
	if err != nil {
		return nil, err
	}
	var here []volume.PersistentVolume
	for _, pv := range pvs {
		if name, err := p.set.Resolve(pv.Pool); err == nil && name == p.spec.Name {
			here = append(here, pv)
		}
	}
	return here, nil
}

// missingVolumes lists those that have neither a directory nor a record.
func (p *Pool) missingVolumes(ctx context.Context, hasCSI bool) (missing []string, err error) {
	wanted, err := p.wanted(ctx)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	var disk poolfs.FS
	if hasCSI {
		if disk, err = p.set.Disk.Open(p.spec.Path); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, disk.Close()) }()
	}
	for _, pv := range wanted {
		if disk == nil || volume.ValidateID(pv.Handle) != nil || !holds(disk, pv.Handle) {
			missing = append(missing, pv.Handle)
		}
	}
	return missing, nil
}

func holds(disk poolfs.FS, id string) bool {
	_, noData := disk.Stat(id)
	_, noRecord := disk.Stat(store.Path(id))
	return noData == nil || noRecord == nil
}
