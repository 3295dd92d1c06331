package volume

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// askAgain is how soon the Kubernetes API is asked again about untracked directories when it did not answer, and how
// long a pool that hangs is waited for.
const askAgain = 30 * time.Second

// AdoptAll adopts untracked directories that PersistentVolumes name, whenever a pool comes or changes, until ctx ends.
func (l *Locked) AdoptAll(ctx context.Context) {
	changed := l.Pools.Changed()
	for {
		var again <-chan time.Time
		brief, cancel := context.WithTimeout(ctx, askAgain)
		err := l.AdoptUntracked(brief)
		cancel()
		if err != nil && ctx.Err() == nil {
			l.Log.Warn("cannot adopt untracked directories yet", logging.KeyError, err)
			again = time.After(askAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// AdoptUntracked does that once, with one list of PersistentVolumes, in all pools at once. It leaves a pool that hangs
// when ctx ends.
func (l *Locked) AdoptUntracked(ctx context.Context) error {
	untracked := l.Pools.Untracked()
	if len(untracked) == 0 {
		return nil
	}
	pvs, err := l.Cluster.List(ctx)
	if err != nil {
		return err
	}
	byHandle := make(map[string]nodeapi.PersistentVolume, len(pvs))
	for _, pv := range pvs {
		byHandle[pv.Handle] = pv
	}
	done := make(chan error, len(untracked))
	for name, ids := range untracked {
		go func() { done <- l.adoptIn(ctx, name, ids, byHandle) }()
	}
	var problems []error
	for range untracked {
		select {
		case err := <-done:
			problems = append(problems, err)
		case <-ctx.Done():
			return errors.Join(append(problems, context.Cause(ctx))...)
		}
	}
	return errors.Join(problems...)
}

// adoptIn adopts what PersistentVolumes name of the untracked directories of a pool. ErrBusy while it does already.
func (l *Locked) adoptIn(ctx context.Context, name string, ids []string, pvs map[string]nodeapi.PersistentVolume) error {
	end, err := l.take("adopt untracked directories of pool", name)
	if err != nil {
		return err
	}
	defer end()
	var problems []error
	for _, id := range ids {
		pv, named := pvs[id]
		if in, ok := l.Pools.PoolOf(pv); !named || (ok && in != name) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		problems = append(problems, l.do(context.WithoutCancel(ctx), id, func(ctx context.Context) error {
			_, err := l.adopt(ctx, name, pv)
			return err
		}))
	}
	return errors.Join(problems...)
}

// inlinePrefix begins the ids that the kubelet gives to inline volumes (pkg/volume/csi/csi_mounter.go).
const inlinePrefix = "csi-"

// wasInline reports whether what was published at a target may be an inline volume, and whether that is known. After a
// restart it is not: a pool that hangs must not keep other pods from ending.
func (m *Manager) wasInline(ctx context.Context, id, target string) (inline, known bool, err error) {
	if _, v, known := m.Pools.Find(id); known {
		return v.Ephemeral, true, nil
	}
	if _, tracked, err := m.trackInline(ctx, target, store.Record{ID: id}); tracked || err != nil {
		return tracked, tracked, err
	}
	inline = strings.HasPrefix(id, inlinePrefix) &&
		slices.ContainsFunc(m.Pools.Names(), func(name string) bool { return m.Pools.Spec(name).Inline })
	return inline, false, nil
}

// trackInline writes the record of an untracked directory that is, as the kubelet has noted beside the target, an
// inline volume: another driver made it, for a pod that has outlived that.
func (m *Manager) trackInline(ctx context.Context, target string, r store.Record) (in string, ok bool, err error) {
	for name, ids := range m.Pools.Untracked() {
		if !slices.Contains(ids, r.ID) || !m.IsInline(r.ID, target) {
			continue
		}
		r.Ephemeral = true
		err = m.Pools.Use(ctx, name, func(o *pool.Open) error {
			ok, err = m.track(o, r)
			return err
		})
		return name, ok, err
	}
	return "", false, nil
}
