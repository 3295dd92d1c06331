package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// Create makes a volume, or answers the one that an equal earlier request made. On error nothing half-made is left: what was
// done is undone in reverse, and what a crash leaves is undone by Recover.
func (m *Manager) Create(ctx context.Context, s Spec) (Volume, error) {
	r, err := m.record(s)
	if err != nil {
		return Volume{}, err
	}
	p, err := m.Pools.Get(s.Pool)
	if err != nil {
		return Volume{}, err
	}
	if err := m.inOtherPool(p, s.ID); err != nil {
		return Volume{}, err
	}
	disk, err := p.Open(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer func() { _ = disk.Close() }()
	switch existing, err := m.Records.Read(disk, s.ID); {
	case err == nil:
		unfinished, err := m.unfinished(ctx, p, disk, existing)
		if err != nil {
			return Volume{}, err
		}
		if !unfinished {
			return m.repeat(p, disk, existing, r)
		}
	case !errors.Is(err, ErrNotFound):
		return Volume{}, err
	}
	if r, err = m.build(ctx, p, disk, r); err != nil {
		return Volume{}, fmt.Errorf("create volume %s in pool %s: %w", s.ID, p.Name(), err)
	}
	v := m.answer(p, r)
	m.tellUnenforced(v)
	return v, nil
}

// tellUnenforced says on the claim that its size is not enforced.
func (m *Manager) tellUnenforced(v Volume) {
	if v.Enforcement == None && !v.Ephemeral && v.Claim.Name != "" {
		m.Cluster.Tell(v.Claim, "SizeNotEnforced", fmt.Sprintf("pool %s has no quota on its node: nothing keeps volume %s to %d bytes", v.Pool, v.ID, v.Bytes))
	}
}

// record is the record that a request asks for, its size rounded up to whole blocks.
func (m *Manager) record(s Spec) (Record, error) {
	if err := ValidateID(s.ID); err != nil {
		return Record{}, err
	}
	size, err := WholeBlocks(s.Bytes, s.MaxBytes)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Version: RecordVersion, ID: s.ID, Pool: s.Pool, Bytes: size, Inodes: s.Inodes,
		Mode: posixBits(s.Mode), UID: s.UID, GID: s.GID, OnDelete: s.OnDelete,
		Claim: s.Claim, Parameters: s.Parameters, Ephemeral: s.Ephemeral, Created: m.Now().UTC(),
	}, nil
}

// WholeBlocks rounds a size in bytes up, which a limit other than 0 must not forbid.
func WholeBlocks(bytes, limit int64) (int64, error) {
	size := (bytes + Block - 1) / Block * Block
	switch {
	case bytes <= 0:
		return 0, fmt.Errorf("%w: capacity is %d bytes, must be at least 1", ErrInvalid, bytes)
	case size < bytes: // overflow
		return 0, fmt.Errorf("%w: capacity %d bytes is more than any filesystem holds", ErrOutOfRange, bytes)
	case limit > 0 && size > limit:
		return 0, fmt.Errorf("%w: %d bytes rounded up to whole blocks of %d are %d, above limit_bytes %d", ErrOutOfRange, bytes, Block, size, limit)
	}
	return size, nil
}

// inOtherPool refuses an id that another pool of this node holds.
func (m *Manager) inOtherPool(p Pool, id string) error {
	for _, other := range m.Pools.All() {
		if other.Name() == p.Name() {
			continue
		}
		if _, ok := other.Ledger().Get(id); ok {
			return fmt.Errorf("%w: %s is in pool %s, asked for in pool %s", ErrExists, id, other.Name(), p.Name())
		}
	}
	return nil
}

// unfinished clears what an earlier request left that failed and could not be undone; it was never answered to anyone.
func (m *Manager) unfinished(ctx context.Context, p Pool, disk poolfs.FS, r Record) (bool, error) {
	_, ok, err := exists(disk, r.ID)
	if err != nil || ok {
		return false, err
	}
	s, err := m.survey(disk, r.ID)
	if err != nil || s.verdict() != undoCreate {
		return false, err
	}
	if err := m.settle(ctx, disk, r.ID, s); err != nil {
		return true, err
	}
	return true, dropLimit(p, disk, r)
}

// dropLimit is DropLimit where nobody tries again: the number stays taken until the pool is recovered if the filesystem is not done with it.
func dropLimit(p Pool, disk poolfs.FS, r Record) error {
	if err := DropLimit(p, disk, r); !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return nil
}

// repeat answers a request for a volume that exists.
func (m *Manager) repeat(p Pool, disk poolfs.FS, is, asked Record) (Volume, error) {
	for _, f := range []struct {
		name      string
		is, asked any
	}{
		{"capacity in bytes", is.Bytes, asked.Bytes},
		{"inodeLimit", is.Inodes, asked.Inodes},
		{"directoryMode", fmt.Sprintf("%04o", is.Mode), fmt.Sprintf("%04o", asked.Mode)},
		{"uid", is.UID, asked.UID},
		{"gid", is.GID, asked.GID},
		{"onDelete", is.OnDelete, asked.OnDelete},
		{"ephemeral", is.Ephemeral, asked.Ephemeral},
	} {
		if f.is != f.asked {
			return Volume{}, fmt.Errorf("%w: %s has %s %v, asked for %v", ErrExists, is.ID, f.name, f.is, f.asked)
		}
	}
	_, ok, err := exists(disk, is.ID)
	if err != nil {
		return Volume{}, err
	}
	if !ok {
		return Volume{}, lost(is)
	}
	// A request that failed at its very last step, or whose driver was killed there, did not come to this.
	if err := syncDirs(disk, poolfs.VolumesDir, "."); err != nil {
		return Volume{}, err
	}
	p.Ledger().Put(is)
	return m.answer(p, is), nil
}

func lost(r Record) error {
	return fmt.Errorf("%w: the record of %s is there but its directory csi/%s in pool %s is gone; restore it, or delete the claim",
		ErrLost, r.ID, r.ID, r.Pool)
}

// build makes a volume that does not exist: bytes reserved, everything in staging, the record, the move into place, each
// durable before the next. Where the backend keeps that order by itself, one sync at the end makes all durable.
func (m *Manager) build(ctx context.Context, p Pool, disk poolfs.FS, r Record) (made Record, err error) {
	if err := clearWay(ctx, disk, r.ID); err != nil {
		return r, err
	}
	space, err := disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	reservation, err := p.Ledger().Reserve(r.ID, r.Bytes, space)
	if err != nil {
		return r, err
	}
	defer reservation.Release()
	var undo rollback
	defer func() { err = undo.after(err) }()

	r.Backend, r.ProjectID = p.Backend().Name(), reservation.Number
	staged := path.Join(poolfs.StagingDir, r.ID)
	undo.add(func() error { return dropLimit(p, disk, r) })
	undo.add(func() error { return m.Records.Forget(disk, r.ID) })
	if err := m.Records.Prepare(disk, r); err != nil { // before Make: an fsync after it may be a commit
		return r, err
	}
	undo.add(func() error { return removeStaged(ctx, disk, r.ID) })
	if err := p.Backend().Make(disk, staged, r); err != nil {
		return r, err
	}
	between := syncUnless(p.Backend().KeepsOrder(disk, staged, r))
	if err := between(disk, staged, poolfs.StagingDir); err != nil {
		return r, err
	}
	undo.add(func() error { return m.Records.Remove(disk, r.ID) })
	if err := m.Records.Place(disk, r.ID); err != nil {
		return r, err
	}
	if err := between(disk, poolfs.VolumesDir); err != nil {
		return r, err
	}
	if err := disk.Rename(staged, r.ID); err != nil {
		return r, fmt.Errorf("move it into place: %w", err)
	}
	undo.add(func() error { return errors.Join(disk.Rename(r.ID, staged), syncDirs(disk, poolfs.StagingDir, ".")) })
	if err := syncDirs(disk, ".", poolfs.StagingDir); err != nil {
		return r, err
	}
	p.Ledger().Put(r)
	return r, nil
}

// clearWay makes sure that nothing stands where the volume is to be made. A leftover in staging has no record, so it
// was never answered to anyone; a directory in csi/ without a record is somebody's data.
func clearWay(ctx context.Context, disk poolfs.FS, id string) error {
	_, taken, err := exists(disk, id)
	if err != nil {
		return err
	}
	if taken {
		return fmt.Errorf("%w: csi/%s holds a directory that this driver did not make; move it away first", ErrExists, id)
	}
	return removeStaged(ctx, disk, id)
}

// removeStaged removes a volume's directory from staging; none there is no error. It holds no user's data yet.
func removeStaged(ctx context.Context, disk poolfs.FS, id string) error {
	name := path.Join(poolfs.StagingDir, id)
	_, there, err := exists(disk, name)
	if err != nil || !there {
		return err
	}
	if err := disk.RemoveTree(ctx, name, atFullSpeed); err != nil {
		return fmt.Errorf("remove csi/%s: %w", name, err)
	}
	return syncDirs(disk, poolfs.StagingDir)
}

func atFullSpeed(context.Context) error { return nil }

func syncDirs(disk poolfs.FS, names ...string) error {
	for _, name := range names {
		if err := disk.Sync(name); err != nil {
			return fmt.Errorf("make csi/%s durable: %w", name, err)
		}
	}
	return nil
}

// syncUnless is syncDirs for between two steps that are on the disk in the wrong order without it.
func syncUnless(keepsOrder bool) func(disk poolfs.FS, names ...string) error {
	if keepsOrder {
		return func(poolfs.FS, ...string) error { return nil }
	}
	return syncDirs
}

// rollback is the list of steps that undo what was done.
type rollback []func() error

func (r *rollback) add(step func() error) { *r = append(*r, step) }

// after runs the steps in reverse if there was an error, and joins theirs to it. A step that fails ends the undoing: what was done
// before it is then still whole, for the next request or recovery to go on from.
func (r *rollback) after(err error) error {
	if err == nil {
		return nil
	}
	for _, step := range slices.Backward(*r) {
		if undoErr := step(); undoErr != nil {
			return errors.Join(err, fmt.Errorf("undo: %w", undoErr))
		}
	}
	return err
}
