package volume

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// adopt makes a record for a directory that another driver made, if a PersistentVolume of this driver names it. ErrNotFound
// where there is no such directory or no such PersistentVolume: then it is somebody's data and stays untouched.
func (m *Manager) adopt(ctx context.Context, p Pool, disk poolfs.FS, id string) (Record, error) {
	_, ok, err := exists(disk, id)
	if err != nil {
		return Record{}, err
	}
	if !ok {
		return Record{}, ErrNotFound
	}
	pv, ok, err := m.Cluster.Volume(ctx, id)
	if err != nil {
		return Record{}, fmt.Errorf("see whether a PersistentVolume names the directory csi/%s in pool %s: %w", id, p.Name(), err)
	}
	if !ok || !pv.in(p) {
		return Record{}, ErrNotFound
	}
	return m.takeOver(p, disk, pv)
}

// adoptAll adopts what it can of a report's foreign directories, with one list of PersistentVolumes.
func (m *Manager) adoptAll(ctx context.Context, p Pool, disk poolfs.FS, report *Report) {
	if len(report.Foreign) == 0 {
		return
	}
	pvs, err := m.Cluster.Volumes(ctx)
	if err != nil {
		m.Log.Warn("cannot tell yet which directories are volumes", logging.KeyPool, p.Name(), logging.KeyError, err)
		report.Unchecked = true
		return
	}
	named := map[string]PersistentVolume{}
	for _, pv := range pvs {
		if pv.in(p) {
			named[pv.Handle] = pv
		}
	}
	var left []string
	for _, id := range report.Foreign {
		pv, ok := named[id]
		if ok {
			_, err = m.takeOver(p, disk, pv)
		}
		if !ok || err != nil {
			left = append(left, id)
		}
		if ok && err != nil {
			m.Log.Error("cannot adopt a volume", logging.KeyID, id, logging.KeyPool, p.Name(), logging.KeyError, err)
		}
	}
	report.Foreign = left
}

// takeOver writes the record of an adopted volume. Its directory stays as it is.
func (m *Manager) takeOver(p Pool, disk poolfs.FS, pv PersistentVolume) (Record, error) {
	info, ok, err := exists(disk, pv.Handle)
	if err != nil {
		return Record{}, err
	}
	if !ok {
		return Record{}, ErrNotFound
	}
	disposal := pv.OnDelete
	if disposal == "" {
		disposal = Trash
	}
	r := Record{
		Version: RecordVersion, ID: pv.Handle, Pool: p.Name(), Bytes: pv.Bytes, Backend: p.Backend().Name(),
		Mode: posixBits(info.Mode), UID: info.UID, GID: info.GID, OnDelete: disposal, Claim: pv.Claim,
		Adopted: true, Created: m.Now().UTC(),
	}
	if err := m.Records.Add(disk, r); err != nil {
		return Record{}, fmt.Errorf("adopt volume %s: %w", r.ID, err)
	}
	p.Ledger().Put(r)
	m.Log.Info("adopted a volume", logging.KeyID, r.ID, logging.KeyPool, r.Pool, logging.KeyPV, pv.Name)
	return r, nil
}

// in tells whether a PersistentVolume belongs to a pool; one without the attribute may be in any.
func (pv PersistentVolume) in(p Pool) bool { return pv.Pool == "" || pv.Pool == p.Name() }
