package moves

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// seen is what facts were made of.
type seen struct {
	pv             *corev1.PersistentVolume
	claim          *corev1.PersistentVolumeClaim
	source, target *wire.MovingVolume
}

// work makes the steps of a move until it has to wait.
func (r *Room) work(ctx context.Context, id string) {
	const steps = 20
	for range steps {
		brief, cancel := context.WithTimeout(ctx, stepTimeout)
		again, err := r.step(brief, id)
		cancel()
		if err != nil && !errors.Is(err, errChanged) && ctx.Err() == nil {
			r.warn(ctx, id, "it does not go on", err)
			r.say(ctx, id, status.Convert(err).Message())
		}
		if !again || err != nil {
			return
		}
	}
}

// step makes the next step of a move; again reports whether there may be another one at once.
func (r *Room) step(ctx context.Context, id string) (again bool, err error) {
	r.mu.Lock()
	e, ok := r.known[id]
	r.mu.Unlock()
	if !ok {
		return false, nil
	}
	f, s, err := r.look(ctx, e)
	if err != nil {
		return false, err
	}
	a := next(e, f)
	switch a.do {
	case wait:
		r.say(ctx, id, a.says)
		return false, nil
	case advance:
		return true, r.update(ctx, id, e.Phase, func(e *entry) bool { return enter(e, a, s) })
	case finish:
		return false, r.finish(ctx, e, a.says)
	case discard: // not asked about again: another pool that is absent may be thought to have it
		if err = r.discard(ctx, e); err == nil {
			err = r.update(ctx, id, e.Phase, func(e *entry) bool { return enter(e, action{to: Restore}, s) })
		}
		return true, err
	case removeCopy:
		if err = r.Nodes.Remove(ctx, e.To, e.Handle); err == nil {
			err = r.finish(ctx, e, "")
		}
		return false, err
	case copyData:
		return r.copy(ctx, e, s)
	default:
		return true, r.do(ctx, a.do, e, s)
	}
}

// enter has a move go into another phase.
func enter(e *entry, a action, s seen) bool {
	e.Phase, e.Message = a.to, a.says
	if a.keeps {
		e.Policy = corev1.PersistentVolumeReclaimRetain
		e.Message = "its claim went while it was moved: the reclaim policy of its PersistentVolume stays Retain"
	}
	if a.to == Swap {
		e.Labels, e.Annotations = s.pv.Labels, s.pv.Annotations
	}
	if s.source != nil && (a.to == Copy || a.to == Leave) {
		e.Used, e.Snapshots = max(0, s.source.GetUsed()), max(0, s.source.GetSnapshots())
	}
	e.Published = s.source.GetPublished()
	return true
}

// look gathers what a move is decided by.
func (r *Room) look(ctx context.Context, e entry) (f facts, s seen, err error) {
	if s.pv, err = r.Volumes.PV(ctx, e.PV); err == nil {
		s.claim, err = r.Claims.Claim(ctx, e.Claim)
	}
	if err != nil {
		return f, s, err
	}
	f.claim = e.bondOf(s.claim)
	if s.pv != nil {
		f.pv, f.changed = r.place(e, s.pv)
		f.ending, f.policy = s.pv.DeletionTimestamp != nil, s.pv.Spec.PersistentVolumeReclaimPolicy
	}
	f.source, s.source = r.side(ctx, e.From, e.Handle)
	f.target, s.target = r.side(ctx, e.To, e.Handle)
	return f, s, nil
}

// place says where a PersistentVolume is, and how one at the source is not what it was.
func (r *Room) place(e entry, pv *corev1.PersistentVolume) (is where, changed string) {
	if pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != e.Handle {
		return foreign, ""
	}
	on, err := nodeOf(pv, r.TopologyKey)
	switch {
	case err != nil:
		return foreign, ""
	case on == e.To:
		return atTarget, ""
	case on != e.From:
		return foreign, ""
	case string(pv.UID) != e.UID:
		return atSource, "its PersistentVolume is another one than when the move began"
	}
	now := e.identity
	now.Spec = specOn(pv, r.TopologyKey, e.To)
	if now.digest() != e.Move {
		changed = "its PersistentVolume was changed since the move began; start it again"
	}
	return atSource, changed
}

// side asks a node for what it has of a volume.
func (r *Room) side(ctx context.Context, node, id string) (s side, v *wire.MovingVolume) {
	admin, err := r.Nodes.Admin(node)
	if err == nil {
		v, err = admin.Moving(ctx, &wire.MovingRequest{Id: id})
	}
	switch {
	case status.Code(err) == codes.NotFound:
		return side{known: true}, nil
	case err != nil:
		s = side{why: abridge.Printable(status.Convert(err).Message()), gone: r.Nodes.Gone(ctx, node)}
		if s.gone {
			s.why = "node " + node + " is gone: abort the move"
		}
		return s, nil
	case v.GetId() != id:
		return side{why: "node " + node + " answers about another volume"}, nil
	}
	return side{
		known: true, there: true, filling: v.GetFilling(), published: v.GetPublished(), move: v.GetMove(),
	}, v
}

// do makes a step that only tells whether it was made.
func (r *Room) do(ctx context.Context, what verb, e entry, s seen) error {
	switch what {
	case retain:
		return r.Volumes.SetPolicy(ctx, s.pv, corev1.PersistentVolumeReclaimRetain)
	case restore:
		return r.Volumes.SetPolicy(ctx, s.pv, e.Policy)
	case mark:
		return r.leave(ctx, e, e.To)
	case stay:
		return r.leave(ctx, e, "")
	case removePV:
		return r.Volumes.RemovePV(ctx, s.pv)
	case makePV:
		return r.Volumes.MakePV(ctx, e.volumeOn(r.TopologyKey, e.To))
	case makeOldPV:
		return r.Volumes.MakePV(ctx, e.volumeOn(r.TopologyKey, e.From))
	case touch:
		return r.touch(ctx, e, s)
	case wait, advance, copyData, discard, removeCopy, finish: // which are more than that
	}
	return fmt.Errorf("no step %q is known", what)
}

func (r *Room) leave(ctx context.Context, e entry, to string) error {
	admin, err := r.Nodes.Admin(e.From)
	if err == nil {
		_, err = admin.Leave(ctx, &wire.LeaveRequest{
			Id: e.Handle, To: to, Move: e.Move, LeaveSnapshots: e.LeaveSnapshots,
		})
	}
	return err
}

func (r *Room) discard(ctx context.Context, e entry) error {
	admin, err := r.Nodes.Admin(e.From)
	if err == nil {
		_, err = admin.Discard(ctx, &wire.DiscardRequest{
			Id: e.Handle, PvOn: e.To, KeepSeconds: int64(keptFor / time.Second),
		})
	}
	return err
}

// touched is how long Kubernetes may take to bind a claim again, before it is touched once more.
const touched = 200 * time.Millisecond

func (r *Room) touch(ctx context.Context, e entry, s seen) error {
	if err := r.Claims.TouchClaim(ctx, s.claim, e.To); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(touched):
	}
	return nil
}

// say writes what a move waits for into the journal, once.
func (r *Room) say(ctx context.Context, id, says string) {
	r.mu.Lock()
	e, ok := r.known[id]
	r.mu.Unlock()
	if says = abridge.Line(says); !ok || abridge.WithoutNumbers(e.Message) == abridge.WithoutNumbers(says) {
		return
	}
	if err := r.update(ctx, id, e.Phase, func(e *entry) bool { e.Message = says; return true }); err != nil {
		r.warn(ctx, id, "note what it waits for", err)
	}
}

// finish ends a move, and says how it came out, where that is not as usual.
func (r *Room) finish(ctx context.Context, e entry, says string) error {
	if err := r.update(ctx, e.Handle, e.Phase, func(*entry) bool { return false }); err != nil {
		return err
	}
	if e.Phase == Abort {
		r.Claims.TellClaim(e.Claim, corev1.EventTypeWarning, "VolumeStays", cmp.Or(says, fmt.Sprintf(
			"the volume stays on node %s: %s", e.From, cmp.Or(e.Message, "its move was aborted"))))
		return nil
	}
	r.Claims.TellClaim(e.Claim, corev1.EventTypeNormal, "VolumeMoved", cmp.Or(says, fmt.Sprintf(
		"the volume is on node %s now; what was on node %s stays in the trash there for a day at least", e.To, e.From)))
	return nil
}
