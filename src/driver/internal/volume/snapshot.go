package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

// Snapshot makes a snapshot of a volume, or answers the one that an equal earlier request made. One that is Filling can
// be used once it is whole, which who asks again will see.
func (m *Manager) Snapshot(ctx context.Context, s SnapshotSpec) (store.Record, error) {
	snapshot := func(ctx context.Context) (store.Record, error) { return m.snapshot(ctx, s) }
	r, err := result(ctx, m, s.ID, snapshot)
	if err != nil || !r.Filling() {
		return r, err
	}
	err = m.awaitFill(ctx, s.ID)
	if errors.Is(err, ErrFilling) {
		return r, nil
	}
	if err != nil {
		return store.Record{}, err
	}
	return result(ctx, m, s.ID, snapshot)
}

func (m *Manager) snapshot(ctx context.Context, s SnapshotSpec) (r store.Record, err error) {
	from := store.Source{Kind: store.OfVolume, ID: s.Volume}
	err = m.findKind(ctx, store.OfSnapshot, s.ID, func(o *pool.Open, is store.Record) error {
		if r = is; is.Source.String() != from.String() {
			return fmt.Errorf("%w: snapshot %s is of %s, asked for of %s", ErrExists, s.ID, is.Source, &from)
		}
		_, there, err := store.Directory(o.Disk, s.ID)
		if err == nil && !there { // an earlier request may have failed half-way, and could not be undone
			err = fmt.Errorf("%w: no directory of %s", store.ErrNotFound, s.ID)
		}
		return err
	})
	if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, pool.ErrAbsent) { // it would be in its volume's pool
		return r, err
	}
	c, end, err := m.copying(ctx, s.ID, from)
	if err != nil {
		return r, err
	}
	defer end()
	c.bestEffort = s.BestEffort
	err = m.find(ctx, s.Volume, func(o *pool.Open, volume store.Record) error {
		v, err := createIn(ctx, o, store.Record{
			ID: s.ID, Kind: store.OfSnapshot, Pool: o.Name, Bytes: volume.Bytes, OnDelete: store.Purge,
			Claim: volume.Claim, Source: &from, Created: m.Now().UTC(),
		}, maker{c.build, c.again})
		r = v.Record
		return err
	})
	return r, err
}

// DeleteSnapshot ends a snapshot. One that is certainly not on this node is deleted already.
func (m *Manager) DeleteSnapshot(ctx context.Context, id string) error {
	if err := m.stopFill(ctx, store.OfSnapshot, id); err != nil {
		return err
	}
	return m.exclusive(ctx, id, func(ctx context.Context) error {
		err := m.findKind(ctx, store.OfSnapshot, id, func(o *pool.Open, r store.Record) error {
			return m.delete(ctx, o, r)
		})
		if errors.Is(err, store.ErrNotFound) {
			return m.deleted(ctx, store.OfSnapshot, id)
		}
		return err
	})
}

// Snapshots gives up to limit snapshots (0: all), of one volume or with an empty id of all, whose id comes after the
// one given, by id; next is the last id where there are more. One that vanishes meanwhile is left out.
func (m *Manager) Snapshots(
	ctx context.Context, of, after string, limit int,
) (snapshots []store.Record, next string, err error) {
	for name, ids := range m.recorded(store.OfSnapshot) {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id <= after })
		found, err := m.read(ctx, name, store.OfSnapshot, ids)
		if err != nil {
			return nil, "", err
		}
		for _, s := range found {
			if of == "" || s.Source.ID == of {
				snapshots = append(snapshots, s.Record)
			}
		}
	}
	slices.SortFunc(snapshots, func(a, b store.Record) int { return strings.Compare(a.ID, b.ID) })
	if limit > 0 && len(snapshots) > limit {
		snapshots = snapshots[:limit]
		next = snapshots[limit-1].ID
	}
	return snapshots, next, nil
}

// GetSnapshot gives one.
func (m *Manager) GetSnapshot(ctx context.Context, id string) (r store.Record, err error) {
	end, err := m.take("get", id)
	if err != nil {
		return r, err
	}
	defer end()
	err = m.findKind(ctx, store.OfSnapshot, id, func(_ *pool.Open, is store.Record) error {
		r = is
		return nil
	})
	return r, err
}
