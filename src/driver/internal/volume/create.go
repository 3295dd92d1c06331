package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Block is what sizes are rounded up to, in bytes: a page, and the block of most filesystems. Where blocks are larger,
// a volume may take up to a block less than its size.
const Block = 4096

// Create makes a volume, or answers the one that an equal earlier request made. On error nothing half-made is left:
// what was done is undone, and what a crash leaves is undone by recovery. After ErrFilling it goes on: whoever asks
// again gets the volume once its data is there.
func (m *Manager) Create(ctx context.Context, s Spec) (Volume, error) {
	create := func(ctx context.Context) (Volume, error) { return m.create(ctx, s) }
	v, err := result(ctx, m, s.ID, create)
	if err == nil && v.Filling() {
		if err = m.awaitFill(ctx, s.ID); err == nil {
			v, err = result(ctx, m, s.ID, create)
		}
	}
	if err == nil && v.Filling() {
		err = fmt.Errorf("%w: %s is a copy of %s", ErrFilling, s.ID, v.Source)
	}
	if err != nil {
		return Volume{}, err
	}
	return v, nil
}

func (m *Manager) create(ctx context.Context, s Spec) (v Volume, err error) {
	r, err := m.record(s)
	if err != nil {
		return Volume{}, err
	}
	pools := s.Pools()
	if has := m.poolOf(ctx, s); has != "" {
		if !slices.Contains(pools, has) {
			return Volume{}, fmt.Errorf("%w: %s is in pool %s, asked for in pool %s", ErrExists, s.ID, has,
				strings.Join(pools, ", "))
		}
		pools = []string{has}
	}
	how, from := maker{build: build}, ""
	if s.Source != nil {
		c, end, err := m.copying(ctx, s.ID, *s.Source)
		if err != nil {
			return Volume{}, err
		}
		defer end()
		c.onAnotherNode(*s.Source, s.Remote)
		how, from = maker{c.build, c.again}, c.in
	}
	if len(pools) > 1 {
		return m.createAmong(ctx, r, how, m.Pools.Preferred(pools, from))
	}
	err = m.Pools.Use(ctx, pools[0], func(o *pool.Open) error {
		r.Pool = o.Name
		v, err = createIn(ctx, o, r, how)
		return err
	})
	return v, err
}

func (m *Manager) record(s Spec) (store.Record, error) {
	if err := nodeapi.ValidateID(s.ID); err != nil {
		return store.Record{}, err
	}
	if nodeapi.IsSnapshotID(s.ID) {
		return store.Record{}, fmt.Errorf("%w: name: %s is one of a snapshot", ErrInvalid, s.ID)
	}
	size, err := WholeBlocks(s.Bytes, s.MaxBytes)
	if err != nil {
		return store.Record{}, err
	}
	return store.Record{
		ID: s.ID, Pool: s.Pool, Bytes: size,
		Inodes: s.Inodes, InodesFrom: s.InodesFrom,
		Mode: store.POSIXMode(s.Mode), UID: s.UID, GID: s.GID, OnDelete: s.OnDelete,
		Claim: s.Claim, Parameters: s.Parameters, Ephemeral: s.Ephemeral, Source: s.Source, Created: m.Now().UTC(),
	}, nil
}

// WholeBlocks rounds a size in bytes up, which a limit other than 0 must not forbid.
func WholeBlocks(bytes, limit int64) (int64, error) {
	size := (bytes + Block - 1) / Block * Block
	switch {
	case bytes <= 0:
		return 0, fmt.Errorf("%w: capacity is %s, must be at least 1 byte", ErrInvalid, bytesize.Format(bytes))
	case size < bytes: // overflow
		return 0, fmt.Errorf("%w: capacity %s is more than any filesystem has", ErrOutOfRange, bytesize.Format(bytes))
	case limit > 0 && size > limit:
		return 0, fmt.Errorf("%w: %s rounded up to whole blocks of %s is %s, above limit_bytes %s",
			ErrOutOfRange, bytesize.Format(bytes), bytesize.Format(Block), bytesize.Format(size),
			bytesize.Format(limit))
	}
	return size, nil
}

// maker makes what does not exist, in room that it reserves, and goes on with a copy that is not whole.
type maker struct {
	build func(ctx context.Context, o *pool.Open, r store.Record) (made store.Record, err error)
	again func(ctx context.Context, o *pool.Open, is, asked store.Record) (made store.Record, err error)
}

// createIn makes a volume in an open pool, after it has cleared what an earlier request left that was never answered.
// What it gives may be Filling.
func createIn(ctx context.Context, o *pool.Open, r store.Record, how maker) (Volume, error) {
	s, existing, err := o.Look(r.ID)
	if err != nil {
		return Volume{}, err
	}
	switch s.Verdict() {
	case store.Healthy:
		return repeat(o, existing, r)
	case store.LostData:
		existing.Pool = o.Name
		return Volume{}, lostError(existing)
	case store.Refused:
		return Volume{}, refusal(o, r.ID)
	case store.Untracked:
		return Volume{}, fmt.Errorf("%w: csi/%s is a directory that this driver did not make; move it away first",
			ErrExists, r.ID)
	case store.FinishCreate:
		return finish(ctx, o, s, existing, r)
	case store.UndoCreate, store.FinishDelete, store.DropStaged:
		if err := dropLeft(ctx, o, r.ID, s); err != nil {
			return Volume{}, err
		}
	case store.Filling:
		return how.goOn(ctx, o, existing, r)
	case store.Nothing:
	}
	if r, err = how.build(ctx, o, r); err != nil {
		return Volume{}, fmt.Errorf("create %s in pool %s: %w", r.ID, o.Name, err)
	}
	return answer(o, r), nil
}

// dropLeft removes what an earlier request left. Only its prepared record names its limit, and what is made next writes
// another one in its place.
func dropLeft(ctx context.Context, o *pool.Open, id string, s store.Survey) error {
	err := o.Apply(ctx, id, s)
	if errors.Is(err, syscall.EBUSY) {
		o.NoteLeftover()
		return fmt.Errorf("%w: what an earlier request left of %s still has a limit; try again: %w", ErrBusy, id, err)
	}
	return err
}

// refusal says why a record cannot be used. One that can be read by now could not be for a moment.
func refusal(o *pool.Open, id string) error {
	_, err := store.Read(o.Disk, id)
	if err == nil || errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%w: the record of %s could not be read a moment ago; try again", ErrBusy, id)
	}
	return err
}

// finish answers what a crash has left in staging, and is whole.
func finish(ctx context.Context, o *pool.Open, s store.Survey, is, asked store.Record) (Volume, error) {
	if err := o.Settle(ctx, is.ID, s); err != nil {
		return Volume{}, err
	}
	return repeat(o, is, asked)
}

// size is one in bytes, compared as such and shown as people say it.
type size int64

func (s size) String() string { return bytesize.Format(int64(s)) }

// differs refuses a request that asks for other properties than an earlier one.
func differs(is, asked store.Record) error {
	for _, f := range []struct {
		name      string
		is, asked any
	}{
		{"kind", is.Kind, asked.Kind},
		{"capacity", size(is.Bytes), size(asked.Bytes)},
		{"inodeLimit", is.InodesAsked(), asked.InodesAsked()},
		{"directoryMode", fmt.Sprintf("%04o", is.Mode), fmt.Sprintf("%04o", asked.Mode)},
		{"uid", is.UID, asked.UID},
		{"gid", is.GID, asked.GID},
		{"onDelete", is.OnDelete, asked.OnDelete},
		{"ephemeral", is.Ephemeral, asked.Ephemeral},
		{"source", is.Source.String(), asked.Source.String()},
		{"move", moveOf(is.Source), moveOf(asked.Source)},
	} {
		if f.is != f.asked {
			return fmt.Errorf("%w: %s has %s %v, asked for %v", ErrExists, is.ID, f.name, f.is, f.asked)
		}
	}
	return nil
}

// moveOf is the move by which a volume came to this node. One that came by another move is not what is asked for: it
// may be older.
func moveOf(s *store.Source) string {
	if s == nil {
		return ""
	}
	return s.Move
}

func repeat(o *pool.Open, is, asked store.Record) (Volume, error) {
	if err := differs(is, asked); err != nil {
		return Volume{}, err
	}
	// A request that failed at its very last step, or whose driver was killed there, did not come to this.
	if err := disk.SyncAll(o.Disk, disk.VolumesDir, "."); err != nil {
		return Volume{}, err
	}
	if v, known := o.Ledger.Get(is.ID); !known || v.Filling != "" {
		if _, err := o.Reconcile(is); err != nil {
			return Volume{}, err
		}
	}
	is.Pool = o.Name
	return answer(o, is), nil
}

// build makes a volume that does not exist, in bytes that are reserved for it.
func build(ctx context.Context, o *pool.Open, r store.Record) (made store.Record, err error) {
	space, release, err := reserve(o, r)
	if err != nil {
		return r, err
	}
	defer release()
	if r.Kind == store.OfVolume {
		r = withInodes(o.Backend, r, space)
	}
	if r, err = o.Create(ctx, r); err != nil {
		return r, err
	}
	enter(o, r)
	return r, nil
}

// reserve promises the bytes of a volume that is about to be made.
func reserve(o *pool.Open, r store.Record) (space disk.Space, release func(), err error) {
	if space, err = o.Disk.Space(); err != nil {
		return space, nil, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	release, err = o.Ledger.Reserve(r.ID, recovery.Volume(r).Limit().Bytes, space)
	return space, release, err
}

// enter takes what was just made into the ledger.
func enter(o *pool.Open, r store.Record) {
	v := recovery.Volume(r)
	v.Counted = r.QuotaID != 0
	o.Ledger.Put(r.ID, v)
}

// withInodes gives a record the inode limit that its size is worth, where its class names none. An inline volume gets
// no more than that, whatever its pod says: the class is the admin's.
func withInodes(b quota.Backend, r store.Record, space disk.Space) store.Record {
	most := b.Inodes(r.Bytes, space)
	if r.Ephemeral && most > 0 && (r.Inodes == 0 || r.Inodes > most) {
		r.InodesFrom = store.Derived
	}
	if r.InodesFrom == store.Derived {
		r.Inodes = most
	}
	if r.Inodes == 0 {
		r.InodesFrom = store.FromClass
	}
	return r
}
