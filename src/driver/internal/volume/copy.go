package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// copying is a copy that is asked for, of a source that nobody else changes meanwhile.
type copying struct {
	m          *Manager
	source     store.Record
	in         string // the source's pool, "" of one on another node
	used       int64  // what the source uses, in bytes
	shared     bool   // other nodes have that pool as well
	missing    error  // why there is no source: an error only of a copy that is yet to be made
	bestEffort bool   // of a volume that pods may write to
}

// copying looks for the source of a copy, and keeps others from it until its end.
func (m *Manager) copying(ctx context.Context, id string, from store.Source) (c *copying, end func(), err error) {
	switch {
	case from.Move != "" && id == from.ID: // the volume itself, on another node
		return &copying{m: m, missing: store.ErrNotFound}, func() {}, nil
	case id == from.ID || from.Move != "":
		return nil, nil, fmt.Errorf("%w: name: %s cannot be made of itself, and nothing else is moved", ErrInvalid, id)
	}
	if end, err = m.take(change, from.ID); err != nil {
		return nil, nil, err
	}
	c = &copying{m: m}
	c.missing = m.findKind(ctx, from.Kind, from.ID, func(o *pool.Open, source store.Record) error {
		c.source, c.in, c.used, c.shared = source, o.Name, used(o, source), o.Shared()
		_, err := dataOf(o, source)
		return cmp.Or(err, m.whole(source), leaving(source))
	})
	return c, end, nil
}

// onAnotherNode has the copy made of a source on another node, where this one does not have it and its size is known.
// What is in pools that are absent here makes no difference.
func (c *copying) onAnotherNode(from store.Source, bytes int64) {
	if bytes > 0 && (errors.Is(c.missing, store.ErrNotFound) || errors.Is(c.missing, pool.ErrAbsent)) {
		c.missing, c.used = nil, bytes
		c.source = store.Record{ID: from.ID, Kind: from.Kind, Bytes: bytes}
	}
}

// build makes a copy that does not exist, or one that is to be filled.
func (c *copying) build(ctx context.Context, o *pool.Open, r store.Record) (store.Record, error) {
	if c.missing != nil {
		return r, fmt.Errorf("find %s: %w", r.Source, c.missing)
	}
	if err := c.check(o, r); err != nil {
		return r, err
	}
	if c.in != o.Name || o.Backend.Snapshots(o.Disk) == nil {
		return c.begin(ctx, o, r)
	}
	source, err := store.ReadKind(o.Disk, c.source.ID, c.source.Kind)
	if err != nil {
		return r, err
	}
	return buildCopy(ctx, o, source, r)
}

// check refuses what cannot be copied into a volume or a snapshot.
func (c *copying) check(o *pool.Open, r store.Record) error {
	switch {
	case c.source.Ephemeral:
		return fmt.Errorf("%w: %s is an inline volume, which ends with its pod", ErrUnsupported, c.source.ID)
	case o.Shared() || c.shared:
		return fmt.Errorf("%w: neither %s nor its copy may be in a pool with the scope shared", ErrUnsupported,
			r.Source)
	case r.Kind == store.OfVolume && r.Bytes < c.source.Bytes:
		return fmt.Errorf("%w: %s needs a volume of at least %s, asked for %s", ErrOutOfRange, r.Source,
			bytesize.Format(c.source.Bytes), bytesize.Format(r.Bytes))
	case r.Bytes > math.MaxInt64-slack(r.Bytes):
		return fmt.Errorf("%w: capacity %s is more than any filesystem has", ErrOutOfRange, bytesize.Format(r.Bytes))
	}
	return nil
}

// begin makes the directory and the record of a copy, and has it filled.
func (c *copying) begin(ctx context.Context, o *pool.Open, r store.Record) (store.Record, error) {
	if err := c.m.recall(r); err != nil {
		return r, err
	}
	if err := c.unwritten(); err != nil {
		return r, err
	}
	place, err := transfer.Begin().Encode()
	if err != nil {
		return r, err
	}
	r.Source = &store.Source{Kind: r.Source.Kind, ID: r.Source.ID, Move: r.Source.Move, ByFile: true, From: place}
	r.Held = slack(r.Bytes)
	if r.Kind == store.OfSnapshot {
		r.Held = c.used + slack(c.used)
	}
	if r, err = build(ctx, o, r); err != nil {
		return r, err
	}
	if c.in == "" {
		c.m.begun.Store(r.ID, nil)
	}
	return r, c.fill(ctx, o, r)
}

// unwritten refuses a volume that pods may write to.
func (c *copying) unwritten() error {
	at, err := c.m.writableAt(c.source.ID)
	if err != nil || at == "" || c.bestEffort {
		return err
	}
	return fmt.Errorf("%w: %s is mounted at %s, and is copied file by file, which takes its time; stop the pod that "+
		"uses it, or make a snapshot with a VolumeSnapshotClass that says consistency: best-effort",
		ErrPublished, c.source.ID, at)
}

// fill goes on with a copy whose record is placed.
func (c *copying) fill(ctx context.Context, o *pool.Open, r store.Record) error {
	if c.in == "" { // Fill is to start it
		return nil
	}
	f := &fill{record: r, in: o.Name, from: c.in, total: c.used, bestEffort: c.bestEffort}
	f.Most = recovery.Volume(r).Limit().Bytes
	f.Clone = c.in == o.Name // and not on btrfs with quota, which makes snapshots
	f.Next = c.m.reading(f)
	return c.m.startFill(ctx, f)
}

// again goes on with a copy that is not whole. Where its source may have changed since, it begins anew.
func (c *copying) again(ctx context.Context, o *pool.Open, is, asked store.Record) (store.Record, error) {
	if _, running := c.m.filling(is.ID); running {
		return is, nil
	}
	if c.missing != nil && !errors.Is(c.missing, store.ErrNotFound) { // it may come back, with its pool
		return is, fmt.Errorf("find %s: %w", is.Source, c.missing)
	}
	failed := c.m.recall(is)
	_, untouched := c.m.begun.Load(is.ID)
	if failed == nil && c.missing == nil && (is.Source.Constant() || untouched) {
		if err := c.fill(ctx, o, is); !errors.Is(err, copytree.ErrPosition) {
			return is, err
		}
	}
	if err := abandon(o, is, c.m.Now()); err != nil || failed != nil {
		return is, cmp.Or(failed, err)
	}
	return c.build(ctx, o, asked)
}

// buildCopy makes a copy within its source's pool. What it shares with a volume stays charged to that, so the volume
// first gets as much room beside its size.
func buildCopy(ctx context.Context, o *pool.Open, source, r store.Record) (made store.Record, err error) {
	if r.Kind == store.OfVolume {
		_, release, err := reserve(o, r)
		if err != nil {
			return r, err
		}
		defer release()
	}
	from := *r.Source
	from.Complete = true
	r.Source, r.Pins = &from, source.Pins
	if source.Kind == store.OfSnapshot {
		made, err = o.Copy(ctx, r, func(*store.Record) error { return nil })
	} else {
		made, err = copyLive(ctx, o, source, r)
	}
	if err != nil {
		return r, fmt.Errorf("copy %s: %w", r.Source, err)
	}
	enter(o, made)
	if made.Source.Skipped > 0 {
		o.Log.Warn("subvolumes inside a volume are empty directories in its copy", logging.KeyID, r.ID,
			logging.KeyCount, made.Source.Skipped)
	}
	return made, nil
}

// meanwhile is how much a pod may write, in bytes, between the look at what a volume has and its copy. After more than
// that the volume has to be given more room for a snapshot, and a clone has to be made again.
const meanwhile = 64 << 20

// copyLive copies a volume that pods may be writing to.
func copyLive(ctx context.Context, o *pool.Open, source, r store.Record) (made store.Record, err error) {
	v, err := o.Reconcile(source)
	if err != nil {
		return r, err
	}
	if !v.Counted {
		return r, fmt.Errorf("%w, so what a copy would keep cannot be counted: volume %s; copy its data into a volume "+
			"of the pool in a pod, or, where it was restored by hand, once no pod uses it: kubectl hpp enforce %s",
			ErrNotEnforced, source.ID, source.ID)
	}
	source.Held = v.Held
	before, raised := source.Held, source
	if err = o.Backend.Snapshots(o.Disk).Flush(source.ID); err != nil {
		return r, err
	}
	used, err := usageOfOne(o, source.QuotaID)
	if err == nil {
		raised, err = hold(o, source, min(source.Limit().Bytes, used+meanwhile))
	}
	if err != nil {
		return r, err
	}
	most := raised.Held
	pins := func() []quota.Pin { return append([]quota.Pin{{ID: source.QuotaID, Bytes: most}}, source.Pins...) }
	r.Pins = pins()
	made, err = o.Copy(ctx, r, func(r *store.Record) error {
		if most, err = usageOfOne(o, source.QuotaID); err == nil && r.Kind == store.OfVolume && most > raised.Held {
			err = fmt.Errorf("%w: a pod wrote more than %s into %s while it was copied; try again", ErrBusy,
				bytesize.Format(meanwhile), source.ID)
		}
		if err == nil {
			raised, err = hold(o, raised, most)
		}
		r.Pins = pins()
		return err
	})
	if err != nil {
		return r, err // the room goes back once what was undone has left the count
	}
	// Where the copy's record could not be written anew, it says more than most.
	if err := letGo(o, raised, max(before, quota.Pinned(made.Pins, source.QuotaID))); err != nil {
		o.Log.Warn("a volume holds more room than its copies need", logging.KeyID, source.ID, logging.KeyError, err)
	}
	return made, nil
}

func usageOfOne(o *pool.Open, id quota.ID) (int64, error) {
	usage, err := o.Limits.Usage([]quota.ID{id})
	return usage[id].Bytes, err
}
