package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// tagging is work on the files of a volume that is under way.
type tagging struct {
	files     atomic.Int64
	returning bool
	stop      context.CancelCauseFunc
	ended     chan struct{}
}

// end stops it, and waits for that.
func (t *tagging) end(ctx context.Context, id string) error {
	t.stop(ErrBusy)
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the enforcement of %s has not stopped yet", ErrBusy, id)
	}
}

func (m *Manager) tagged(id string) (*tagging, bool) {
	found, _ := m.taggings.Load(id)
	t, ok := found.(*tagging)
	return t, ok
}

// tagProgress says how far the work on the files of a volume is, nil where there is none.
func (m *Manager) tagProgress(id string) error {
	t, ok := m.tagged(id)
	if !ok {
		return nil
	}
	return fmt.Errorf("%w: %d files of %s are done", ErrEnforcing, t.files.Load(), id)
}

// askTagging has EnforceTaken look at once.
func (m *Manager) askTagging() {
	select {
	case m.tag <- struct{}{}:
	default:
	}
}

// EnforceTaken makes the files of directories that were taken count to their volumes' IDs, or takes them out of these
// before they are returned, one volume after the other, until ctx ends. After a restart it goes on.
func (m *Manager) EnforceTaken(ctx context.Context) {
	changed := m.Pools.Changed()
	for {
		var again <-chan time.Time
		if m.enforceTaken(ctx) {
			again = time.After(askAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-m.tag:
		case <-again:
		}
	}
}

// enforceTaken does that once for each volume, and reports whether some are left.
func (m *Manager) enforceTaken(ctx context.Context) (left bool) {
	var ids []string
	m.Pools.Each(func(_, id string, v ledger.Volume) {
		if v.Tagging {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	for _, id := range ids {
		err := m.tagOne(ctx, id)
		if ctx.Err() != nil {
			return false
		}
		if m.tagFailed.Delete(id); err != nil {
			left = true
			m.tagFailed.Store(id, err.Error())
			m.Log.Warn("cannot see to what counts to a volume", logging.KeyID, id, logging.KeyError, err)
		}
	}
	return left
}

func (m *Manager) tagOne(ctx context.Context, id string) (err error) {
	var r store.Record
	if err := m.find(ctx, id, func(_ *pool.Open, is store.Record) error { r = is; return nil }); err != nil {
		return err
	}
	t := &tagging{returning: r.Returning, ended: make(chan struct{})}
	ctx, t.stop = context.WithCancelCause(ctx)
	m.taggings.Store(id, t)
	defer close(t.ended)
	defer m.taggings.Delete(id)
	defer t.stop(nil)
	switch {
	case r.Enforcing:
		err = m.Enforce(ctx, id, nil, t.files.Store)
	case r.Returning && r.QuotaID != 0:
		err = m.untag(ctx, id, t)
	}
	if errors.Is(context.Cause(ctx), ErrBusy) { // it was stopped, and whoever did that goes on
		return nil
	}
	return err
}

// untag takes all files of a volume out of its ID, and removes the limit of that.
func (m *Manager) untag(ctx context.Context, id string, t *tagging) error {
	end, err := m.take(change, id)
	if err != nil {
		return err
	}
	defer end()
	var r store.Record
	if err := m.find(ctx, id, func(_ *pool.Open, is store.Record) error { r = is; return nil }); err != nil {
		return err
	}
	return m.walkTree(ctx, r, quota.Tree{Name: id}, t.files.Store, func(o *pool.Open) error {
		if err := o.Limits.Set(id, r.QuotaID, quota.Limit{}); err != nil {
			return err
		}
		r.QuotaID, r.Backend = 0, quota.Plain
		if err := store.Replace(o.Disk, r); err != nil {
			return err
		}
		v := recovery.Volume(r)
		v.Tagging = false
		o.Ledger.Put(id, v)
		return nil
	})
}

// beingTagged answers a repeated take while the work goes on.
func (m *Manager) beingTagged(ctx context.Context, s TakeSpec, t *tagging) (taken nodeapi.TakenDirectory, err error) {
	err = m.find(ctx, s.ID, func(o *pool.Open, r store.Record) error {
		if r.TakenFrom != s.Path || o.Name != s.Pool {
			return fmt.Errorf("%w: %s was taken from %s into pool %s", ErrExists, s.ID, r.TakenFrom, o.Name)
		}
		taken = m.describeTaken(o, r, s)
		return nil
	})
	taken.Files = t.files.Load()
	return taken, err
}

// whole refuses a volume to pods while some of its files count to its ID and others do not: in a directory that hands
// its project on, a rename of a file that does not count to it fails, and a database gives up.
func (m *Manager) whole(r store.Record) error {
	what := "its files are being counted, so that it is held to its size"
	if r.Returning {
		what = "it goes back to " + r.TakenFrom
	}
	if failed, ok := m.tagFailed.Load(r.ID); ok {
		what += fmt.Sprintf(", and that failed (%v)", failed)
	}
	if !r.Tagging() {
		return nil
	}
	m.askTagging()
	return fmt.Errorf("%w: %s: %s", ErrEnforcing, r.ID, what)
}
