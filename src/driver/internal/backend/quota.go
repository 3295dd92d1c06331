package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// Names of backends in records, metrics and pool.json.
const (
	NamePlain   = "plain"
	NameBtrfs   = "btrfs"
	NameProject = "project"
)

// leastBtrfs is the smallest limit, in bytes, under which btrfs (nodes of 16 KiB) lets a file be made: each tree that changes reserves
// several nodes beforehand.
const leastBtrfs = 128 << 10

// Quota makes directories whose size the filesystem's own quota holds: project quota of XFS and ext4, qgroups of btrfs. Volumes that
// it did not make (adopted, or made while no quota was on) are as plain ones to it.
type Quota struct {
	Plain
	kind poolfs.Quota
}

// Name is what records and metrics call this backend.
func (q Quota) Name() string {
	if q.kind == poolfs.QuotaProject {
		return NameProject
	}
	return NameBtrfs
}

// Enforcement is strict for simple quota. The owner of a file can change its project id, and a subvolume made inside a volume leaves
// full qgroups: these need the pod's cooperation (docs/explanation/enforcement.md).
func (q Quota) Enforcement() volume.Enforcement {
	if q.kind == poolfs.QuotaSimple {
		return volume.Strict
	}
	return volume.Cooperative
}

// KeepsOrder is as poolfs.Counter has it of MkdirCounted. In doubt, as where somebody has put another directory in the place, it is false.
func (q Quota) KeepsOrder(disk poolfs.FS, name string, r volume.Record) bool {
	quotas, err := quotasOf(disk)
	if err != nil || !q.made(r) || q.kind == poolfs.QuotaProject {
		return false
	}
	number, err := quotas.CountedBy(name)
	return err == nil && number == r.ProjectID
}

// Make sets the limit and makes the directory under it.
func (q Quota) Make(disk poolfs.FS, name string, r volume.Record) error {
	quotas, err := quotasOf(disk)
	if err != nil {
		return err
	}
	if r.Inodes > 0 && q.kind != poolfs.QuotaProject {
		return fmt.Errorf("%w: inodeLimit %d: btrfs does not limit the number of files; leave inodeLimit out or use a pool on XFS or ext4",
			volume.ErrUnsupported, r.Inodes)
	}
	if r.Bytes < leastBtrfs && q.kind != poolfs.QuotaProject {
		return fmt.Errorf("%w: %d bytes are less than the %d that an empty subvolume of btrfs needs to take a file", volume.ErrOutOfRange, r.Bytes, int64(leastBtrfs))
	}
	if r.ProjectID == 0 {
		return fmt.Errorf("make volume %s: it has no number in the filesystem's quota", r.ID)
	}
	if err := quotas.SetLimit(r.ProjectID, limitOf(r)); err != nil {
		return fmt.Errorf("limit volume %s to %d bytes: %w", r.ID, r.Bytes, err)
	}
	mode := unixMode(r.Mode)
	if err := quotas.MkdirCounted(name, mode, r.ProjectID); err != nil {
		return fmt.Errorf("make the directory of volume %s: %w", r.ID, err)
	}
	return own(disk, name, r)
}

// Hold makes the limit on the disk that of the record. A directory that counts elsewhere is volume.ErrBroken: whoever did that knows
// why; one that counts nowhere is Loose.
func (q Quota) Hold(disk poolfs.FS, name string, r volume.Record) error {
	if !q.made(r) {
		return nil
	}
	quotas, err := quotasOf(disk)
	if err != nil {
		return err
	}
	number, err := quotas.CountedBy(name)
	if err != nil {
		return fmt.Errorf("see what volume %s is counted by: %w", r.ID, err)
	}
	if number != 0 && number != r.ProjectID {
		return fmt.Errorf("%w: directory csi/%s counts to number %d of the %s quota, its record says %d; give it back its number, or move the data to a new volume",
			volume.ErrBroken, r.ID, number, q.Name(), r.ProjectID)
	}
	account, err := quotas.Account(r.ProjectID)
	if err != nil {
		return fmt.Errorf("read the limit of volume %s: %w", r.ID, err)
	}
	if account.Limit != limitOf(r) {
		if err := quotas.SetLimit(r.ProjectID, limitOf(r)); err != nil {
			return fmt.Errorf("limit volume %s to %d bytes: %w", r.ID, r.Bytes, err)
		}
	}
	if q.kind != poolfs.QuotaProject { // in btrfs, whoever writes to a volume can make subvolumes that count nowhere
		if err := quotas.Count(name, r.ProjectID); err != nil {
			return fmt.Errorf("tie volume %s to its limit: %w", r.ID, err)
		}
	}
	return nil
}

// Loose finds a directory with a project that counts nowhere, which somebody has put back as a copy, or a process in the pod has taken
// out. Its content counts nowhere either.
func (q Quota) Loose(disk poolfs.FS, name string, r volume.Record) (bool, error) {
	if q.kind != poolfs.QuotaProject || !q.made(r) {
		return false, nil
	}
	quotas, err := quotasOf(disk)
	if err != nil {
		return false, err
	}
	number, err := quotas.CountedBy(name)
	return number == 0, err
}

// Gather ties each file of such a directory, and the directory itself.
func (q Quota) Gather(ctx context.Context, disk poolfs.FS, name string, r volume.Record) error {
	quotas, err := quotasOf(disk)
	if err != nil {
		return err
	}
	err = quotas.CountTree(ctx, name, r.ProjectID)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: csi/%s was put there without its project %d, and a file in it cannot be counted: %w; remove the cause, or move that file out of the volume",
			volume.ErrNotCounted, r.ID, r.ProjectID, err)
	}
	return err
}

// Drop removes the limit of a volume whose directory is gone.
func (q Quota) Drop(disk poolfs.FS, r volume.Record) error {
	if !q.made(r) {
		return nil
	}
	quotas, err := quotasOf(disk)
	if err != nil {
		return err
	}
	if err := quotas.RemoveAccount(r.ProjectID); err != nil {
		return fmt.Errorf("remove the limit of volume %s: %w", r.ID, err)
	}
	return nil
}

// Stats is the volume's own use. What it may still take ends where the filesystem does.
func (q Quota) Stats(disk poolfs.FS, name string, r volume.Record) (volume.Stats, error) {
	whole, err := q.Plain.Stats(disk, name, r)
	if err != nil || !q.made(r) {
		return whole, err
	}
	quotas, err := quotasOf(disk)
	if err != nil {
		return volume.Stats{}, err
	}
	if q.kind != poolfs.QuotaProject { // as in Hold; who asks for numbers wants these, whether that works or not
		_ = quotas.Count(name, r.ProjectID)
	}
	account, err := quotas.Account(r.ProjectID)
	if err != nil {
		return volume.Stats{}, fmt.Errorf("read the use of volume %s: %w", r.ID, err)
	}
	s := volume.Stats{
		Own: true, Bytes: r.Bytes, BytesUsed: account.BytesUsed,
		BytesAvailable: min(whole.BytesAvailable, max(0, r.Bytes-account.BytesUsed)),
	}
	if q.kind == poolfs.QuotaProject {
		s.Inodes, s.InodesUsed, s.InodesAvailable = whole.Inodes, account.InodesUsed, whole.InodesAvailable
		if r.Inodes > 0 {
			s.Inodes = r.Inodes
			s.InodesAvailable = min(whole.InodesAvailable, max(0, r.Inodes-account.InodesUsed))
		}
	}
	return s, nil
}

// made tells whether a volume is one of this backend's own.
func (q Quota) made(r volume.Record) bool {
	return r.Backend == q.Name() && r.ProjectID != 0 && !r.Adopted
}

func limitOf(r volume.Record) poolfs.Limit { return poolfs.Limit{Bytes: r.Bytes, Inodes: r.Inodes} }

func quotasOf(disk poolfs.FS) (poolfs.Quotas, error) {
	q, ok := poolfs.QuotasOf(disk)
	if !ok {
		return nil, errors.New("this disk has no quota")
	}
	return q, nil
}
