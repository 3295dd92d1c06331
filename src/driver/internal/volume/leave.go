package volume

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Moving is what a move has to know of a volume on this node.
type Moving struct {
	store.Record
	Published bool
	Used      int64 // bytes, or the volume's size where nobody knows
	Snapshots int   // of it, on this node
	Copied    int64 // bytes of a copy that is not whole
	Nested    int   // subvolumes in it, which are not copied
	Placed    bool  // its directory is where pods get it
}

// Whole reports whether it is no copy that something is missing of.
func (v Moving) Whole() bool {
	brought := v.Source != nil && v.Source.Move != ""
	return !v.Filling() && (v.Placed || !brought)
}

// Moving gives what a move has to know of a volume, the source's as well as that which is filled.
func (m *Manager) Moving(ctx context.Context, id string) (v Moving, err error) {
	end, err := m.take("moving", id)
	if err != nil {
		return v, err
	}
	defer end()
	err = m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		v = Moving{Record: r, Published: m.Published(id), Used: used(o, r), Copied: m.copiedBytes(r)}
		_, v.Placed, err = store.Directory(o.Disk, id)
		if s := o.Backend.Snapshots(o.Disk); err == nil && v.Placed && s != nil {
			v.Nested, err = s.Nested(id)
		}
		return err
	})
	if err != nil {
		return v, err
	}
	snapshots, _, err := m.Snapshots(ctx, id, "", 0)
	v.Snapshots = len(snapshots)
	return v, err
}

// copiedBytes is how much there is of a copy that is not whole.
func (m *Manager) copiedBytes(r store.Record) int64 {
	if f, ok := m.filling(r.ID); ok {
		return f.Progress().Bytes
	}
	if !r.Filling() {
		return 0
	}
	place, err := transfer.Decode(r.Source.From)
	if err != nil { // it will begin anew
		return 0
	}
	return place.Bytes
}

// Leave marks a volume as one that is being moved to another node, durably: from then on no pod gets it here, and
// nothing of it changes but by pods that have it. It reports whether this move had marked it before; what it gives is
// the volume as it was then. One with snapshots is refused unless they may stay behind.
func (m *Manager) Leave(
	ctx context.Context, id string, move store.Leaving, leaveSnapshots bool,
) (v Moving, before bool, err error) {
	if move.To == "" || move.Move == "" || len(move.To)+len(move.Move) > longestMove {
		return v, false, fmt.Errorf("%w: to, move: want a node and the name of a move", ErrInvalid)
	}
	v, err = result(ctx, m, id, func(ctx context.Context) (Moving, error) {
		v, err := m.Moving(ctx, id)
		if err != nil {
			return v, err
		}
		return v, m.find(ctx, id, func(o *pool.Open, r store.Record) error {
			if err := m.mayLeave(o, v, move, leaveSnapshots); err != nil {
				return err
			}
			before = r.Leaving != nil
			if !before {
				o.Log.Info("a volume is being moved to another node", logging.KeyID, id, logging.KeyNode, move.To)
			}
			return o.MarkLeaving(r, &move)
		})
	})
	return v, err == nil && before, err
}

// longestMove bounds what a record says of a move, in bytes: a node's name has 253.
const longestMove = 512

// mayLeave refuses what cannot be moved, or not now.
func (m *Manager) mayLeave(o *pool.Open, v Moving, move store.Leaving, leaveSnapshots bool) error {
	_, err := dataOf(o, v.Record)
	switch {
	case err != nil:
		return err
	case v.Leaving != nil && *v.Leaving == move:
		return nil
	case v.Leaving != nil:
		return fmt.Errorf("%w already: %s goes to node %s; end that first: %s", ErrLeaving, v.ID, v.Leaving.To,
			abortCommand(v.Record))
	case v.Nested > 0:
		return fmt.Errorf("%w: %s has %d subvolumes of btrfs inside, which are not copied; make directories of them",
			ErrUnsupported, v.ID, v.Nested)
	case v.Ephemeral:
		return fmt.Errorf("%w: %s is an inline volume, which ends with its pod", ErrUnsupported, v.ID)
	case o.Shared():
		return fmt.Errorf("%w: %s is in pool %s, which all nodes have", ErrUnsupported, v.ID, o.Name)
	case v.Snapshots > 0 && !leaveSnapshots:
		return fmt.Errorf("%w: %s has %d snapshots, which stay behind; delete them, or say --leave-snapshots",
			ErrUnsupported, v.ID, v.Snapshots)
	}
	return cmp.Or(m.whole(v.Record), m.unread(v.Record), m.requireNoTwin(o))
}

// Stay ends the mark of Leave. None there is no error.
func (m *Manager) Stay(ctx context.Context, id string) error {
	return m.exclusive(ctx, id, func(ctx context.Context) error {
		return m.find(ctx, id, func(o *pool.Open, r store.Record) error {
			m.eachReading(id, func(r *reading) { r.stop(fmt.Errorf("%w: %s stays here", ErrSource, id)) })
			return o.MarkLeaving(r, nil)
		})
	})
}

// stays refuses a volume that is being moved where it is not mounted already.
func (m *Manager) stays(r store.Record, target string) error {
	if r.Leaving == nil {
		return nil
	}
	mount, err := m.Mounter.Inspect(target)
	if err == nil && !mount.Mounted {
		err = leaving(r)
	}
	return err
}

// leaving is why a volume is as it is, nil of one that is not being moved.
func leaving(r store.Record) error {
	if r.Leaving == nil {
		return nil
	}
	return fmt.Errorf("%w: %s goes to node %s, and its pod can start there; to keep it here: %s", ErrLeaving, r.ID,
		r.Leaving.To, abortCommand(r))
}

// settled refuses a volume that is on its way elsewhere: to another node, or back to the directory that it was.
func (m *Manager) settled(r store.Record) error {
	if r.Returning {
		return m.whole(r)
	}
	return leaving(r)
}

func abortCommand(r store.Record) string {
	if r.Claim.Name == "" {
		return "kubectl hpp move CLAIM --abort"
	}
	return fmt.Sprintf("kubectl hpp move %s -n %s --abort", r.Claim.Name, r.Claim.Namespace)
}

// readableFor refuses to read a volume that is being moved for anything else, and for a move one that is not.
func readableFor(r store.Record, move string) error {
	switch {
	case r.Leaving != nil && r.Leaving.Move == move:
		return nil
	case move != "":
		return fmt.Errorf("%w: %s is not being moved any more", ErrSource, r.ID)
	}
	return leaving(r)
}
