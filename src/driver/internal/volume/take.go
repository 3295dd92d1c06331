package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TakeSpec asks that a directory of the node becomes a volume.
type TakeSpec struct {
	ID, Pool, Path string
	Bytes          int64 // its size
	Claim          nodeapi.Claim
	Enforce        string // nodeapi.EnforceNow …
	// Group, if not nil, is the fsGroup of its pods: the root gets it, so that the kubelet changes nothing below.
	Group *int64
}

// measured is how long a directory is measured: no longer than whoever asks waits.
const measured = 20 * time.Second

// TakeDirectory makes a directory of the node a volume of a pool on the same mount, by renaming it. Nothing may use it.
// Asked again it goes on with what was interrupted, and says how far its enforcement is.
func (m *Manager) TakeDirectory(ctx context.Context, s TakeSpec) (nodeapi.TakenDirectory, error) {
	if t, ok := m.tagged(s.ID); ok && !t.returning {
		return m.beingTagged(ctx, s, t)
	}
	var size hostdir.Size
	err := m.checkTake(&s)
	if err == nil {
		size, err = m.measure(ctx, s.Path)
	}
	if errors.Is(err, fs.ErrNotExist) { // it may have been taken
		err = nil
	}
	if err != nil {
		return nodeapi.TakenDirectory{}, err
	}
	return result(ctx, m, s.ID, func(ctx context.Context) (taken nodeapi.TakenDirectory, err error) {
		if err := m.requireNoOtherDriver(ctx, s.ID); err != nil {
			return taken, err
		}
		err = m.Pools.Use(ctx, s.Pool, func(o *pool.Open) error {
			r, err := m.takeIn(ctx, o, s, size)
			if err == nil {
				taken = m.describeTaken(o, r, s)
			}
			return err
		})
		return taken, err
	})
}

func (m *Manager) checkTake(s *TakeSpec) (err error) {
	switch {
	case nodeapi.ValidateID(s.ID) != nil:
		return nodeapi.ValidateID(s.ID)
	case nodeapi.IsSnapshotID(s.ID):
		return fmt.Errorf("%w: id: %s is one of a snapshot", ErrInvalid, s.ID)
	case !slices.Contains([]string{nodeapi.EnforceNow, nodeapi.EnforceLater, nodeapi.EnforceNever}, s.Enforce):
		return fmt.Errorf("%w: enforce: %q: want %s, %s or %s", ErrInvalid, s.Enforce, nodeapi.EnforceNow,
			nodeapi.EnforceLater, nodeapi.EnforceNever)
	case s.Group != nil && (*s.Group < 0 || *s.Group >= 1<<32-1):
		return fmt.Errorf("%w: fs_group: %d is no group's ID", ErrInvalid, *s.Group)
	}
	if s.Bytes, err = WholeBlocks(s.Bytes, 0); err != nil {
		return err
	}
	return m.checkPath(s.Pool, s.Path)
}

func (m *Manager) checkPath(in, p string) error {
	paths := map[string]string{}
	for _, name := range m.Pools.Names() {
		paths[name] = m.Pools.Spec(name).Path
	}
	if paths[in] == "" {
		return fmt.Errorf("%w: %q; this node has: %s", pool.ErrUnknown, in, strings.Join(m.Pools.Names(), ", "))
	}
	if m.Pools.Spec(in).Shared() {
		return fmt.Errorf("%w: pool %s is on all nodes, and a directory of one node is not taken into such a pool",
			ErrUnsupported, in)
	}
	return m.Node.Check(in, p, paths)
}

func (m *Manager) measure(ctx context.Context, p string) (hostdir.Size, error) {
	d, err := m.Paths.OpenDir(p)
	if err != nil {
		return hostdir.Size{}, err
	}
	defer func() { _ = d.Close() }()
	return hostdir.Measure(ctx, d, measured)
}

// takeIn goes on from where an earlier request has come.
func (m *Manager) takeIn(
	ctx context.Context, o *pool.Open, s TakeSpec, size hostdir.Size,
) (r store.Record, err error) {
	is, r, err := lookTaken(o, s.ID)
	if err != nil && !errors.Is(err, store.ErrBroken) {
		return r, err
	}
	verdict := is.Verdict()
	begun := verdict == store.Healthy || verdict == store.Untracked && is.Prepared
	switch {
	case r.Leaving != nil:
		return r, leaving(r)
	case r.Returning:
		return r, fmt.Errorf("%w: %s is on its way back to %s", ErrBusy, s.ID, r.TakenFrom)
	case begun && r.TakenFrom == s.Path:
		return m.goOnTaking(o, r, s, verdict)
	case verdict != store.Nothing && verdict != store.DropStaged:
		return r, occupied(o, s.ID, verdict)
	}
	if err := o.Settle(ctx, s.ID, is); err != nil {
		return r, err
	}
	return m.takeNew(ctx, o, s, size)
}

// goOnTaking ends what an earlier request has begun, or answers it again.
func (m *Manager) goOnTaking(
	o *pool.Open, r store.Record, s TakeSpec, verdict store.Verdict,
) (store.Record, error) {
	var err error
	if verdict == store.Healthy {
		err = disk.SyncAll(o.Disk, disk.VolumesDir, ".")
	} else {
		err = m.finishTake(o, s)
	}
	if err == nil {
		r.Pool = o.Name
		_, err = o.Reconcile(r)
		m.askTagging()
	}
	return r, err
}

// lookTaken is a survey with the record, also one that was prepared and not placed.
func lookTaken(o *pool.Open, id string) (s store.Survey, r store.Record, err error) {
	s, r, err = o.Look(id)
	if err == nil && s.Prepared && !s.Record {
		r, err = store.ReadPrepared(o.Disk, id)
	}
	return s, r, err
}

func (m *Manager) finishTake(o *pool.Open, s TakeSpec) error {
	b, err := m.between(o, s.Path)
	if err != nil {
		return err
	}
	defer b.close()
	err = disk.SyncAll(b.FS, b.csi, path.Dir(b.outside))
	if err == nil {
		err = setGroup(o, s)
	}
	if err == nil {
		err = o.FinishTake(s.ID)
	}
	if err == nil {
		o.MarkTracked(s.ID)
	}
	return err
}

// takeNew takes a directory that nobody has begun to take.
func (m *Manager) takeNew(
	ctx context.Context, o *pool.Open, s TakeSpec, size hostdir.Size,
) (r store.Record, err error) {
	if err := cmp.Or(m.requireNoPV(ctx, s.ID, ""), m.requireNoTwin(o)); err != nil {
		return r, err
	}
	b, err := m.between(o, s.Path)
	if err != nil {
		return r, err
	}
	defer b.close()
	info, err := b.mayGo(m.Node, s.Path)
	withID := s.Enforce != nodeapi.EnforceNever && unenforceable(o) == ""
	enforcing := withID && s.Enforce == nodeapi.EnforceNow
	if err = cmp.Or(err, s.checkUse(size, enforcing)); err != nil {
		return r, err
	}
	r = store.Record{
		ID: s.ID, Pool: o.Name, Bytes: s.Bytes, Backend: quota.Plain, OnDelete: store.Trash, Claim: s.Claim,
		Mode: store.POSIXMode(info.Mode), UID: info.UID, GID: info.GID, TakenFrom: s.Path, Created: m.Now().UTC(),
	}
	space, err := o.Disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	if r.Adopted = !withID; withID {
		r.Backend, r.InodesFrom, r.Enforcing = o.Backend.Name, store.Derived, enforcing
		r = withInodes(o.Backend, r, space)
	}
	release, err := o.Ledger.Readmit(r.ID, r.Limit().Bytes, size.Bytes, space)
	if err != nil {
		return r, err
	}
	defer release()
	r, err = o.Take(r, withID, func() error {
		return cmp.Or(b.move(b.outside, path.Join(b.csi, s.ID)), setGroup(o, s))
	})
	if err != nil {
		return r, fmt.Errorf("take %s into pool %s: %w", s.Path, o.Name, err)
	}
	o.Ledger.Put(r.ID, recovery.Volume(r))
	o.Log.Info("took a directory of the node as a volume", logging.KeyID, r.ID, logging.KeyPath, s.Path)
	m.askTagging()
	return r, nil
}

// checkUse refuses a size that would be enforced, and that every write would exceed.
func (s TakeSpec) checkUse(size hostdir.Size, enforcing bool) error {
	if !enforcing || size.Bytes <= s.Bytes {
		return nil
	}
	return fmt.Errorf("%w: %s has %s or more, and is to be %s: every write would fail; give it a larger size",
		ErrBelowUse, s.Path, bytesize.Format(size.Bytes), bytesize.Format(s.Bytes))
}

// setGroup gives the root of a volume the group and the mode that the kubelet looks for before it changes all that is
// below (fsGroupChangePolicy: OnRootMismatch).
func setGroup(o *pool.Open, s TakeSpec) error {
	if s.Group == nil {
		return nil
	}
	info, err := o.Disk.Stat(s.ID)
	if err != nil {
		return err
	}
	return o.Disk.Own(s.ID, info.UID, int(*s.Group), info.Mode|fs.ModeSetgid|0o770)
}

// unenforceable says why no directory that is taken into a pool can be held to its size.
func unenforceable(o *pool.Open) string {
	switch {
	case o.Backend.Name == quota.Btrfs:
		return "a plain directory on btrfs is no subvolume, and only those can be limited: copy its data into a new " +
			"volume"
	case !o.Backend.Enforces():
		return o.Backend.Reason
	}
	return ""
}

// describeTaken answers what a directory has become.
func (m *Manager) describeTaken(o *pool.Open, r store.Record, s TakeSpec) nodeapi.TakenDirectory {
	taken := nodeapi.TakenDirectory{
		ID: r.ID, Pool: o.Name, Path: r.TakenFrom, Bytes: r.Bytes, Enforcing: r.Enforcing,
		Enforcement: string(o.Enforcement(r.ID)),
	}
	if failed, ok := m.tagFailed.Load(r.ID); ok {
		taken.Failed, _ = failed.(string)
	}
	switch {
	case o.Enforcement(r.ID) != quota.None || r.Enforcing:
	case unenforceable(o) != "":
		taken.Reason = unenforceable(o)
	case r.QuotaID == 0:
		taken.Reason = "it was asked for without enforcement"
	default:
		taken.Reason = "once no pod uses it: volume enforce " + s.ID
	}
	return taken
}
