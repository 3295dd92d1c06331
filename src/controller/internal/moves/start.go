package moves

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// Targets tell what volumes can be moved from and to.
type Targets interface {
	// Room is the largest new volume that a node has room for in a pool, in bytes; the problems are why none of that id
	// can come there from the other node.
	Room(ctx context.Context, from, to, pool, id string) (bytes int64, problems []string)
}

// nodeOf is the only node of a PersistentVolume.
func nodeOf(pv *corev1.PersistentVolume, topologyKey string) (string, error) {
	nodes, labelled := persistentvolume.Nodes(pv, topologyKey)
	if len(nodes) != 1 || len(labelled) > 0 {
		return "", status.Errorf(codes.FailedPrecondition, "PersistentVolume %s is not on one node alone: %s", pv.Name,
			strings.Join(slices.Concat(nodes, labelled), ", "))
	}
	return nodes[0], nil
}

// Start begins to move the volume of a PersistentVolume, unless it is on its way there already. With dry_run it says
// only what would be done, and why it would be refused.
func (r *Room) Start(ctx context.Context, q *wire.StartMoveRequest) (*wire.Move, error) {
	e, m, err := r.plan(ctx, q)
	if status.Code(err) == codes.NotFound {
		return r.underWay(ctx, q, err)
	}
	if err != nil {
		return nil, err
	}
	texts, version, err := r.Journal.Load(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if text, ok := texts[e.Handle]; ok {
		is, err := decode(e.Handle, text)
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		return running(is, q.GetTo())
	}
	(*problems)(&m.Problems).add(len(texts) >= maxMoves, "%d moves are under way already", maxMoves)
	if q.GetDryRun() {
		return m, nil
	}
	if len(m.GetProblems()) > 0 {
		return nil, status.Error(codes.FailedPrecondition, strings.Join(m.GetProblems(), "; "))
	}
	text, err := e.text()
	if err == nil {
		err = r.Journal.Store(ctx, version, e.Handle, text)
	}
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "%v; try again", err)
	}
	m.Phase = string(e.Phase)
	return m, nil
}

// underWay answers for a PersistentVolume that is missing, which it is for a moment of its move.
func (r *Room) underWay(ctx context.Context, q *wire.StartMoveRequest, missing error) (*wire.Move, error) {
	all, err := r.load(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	for _, is := range all {
		if is.PV == q.GetPv() {
			return running(is, q.GetTo())
		}
	}
	return nil, missing
}

// running answers for a volume that is being moved already.
func running(is entry, to string) (*wire.Move, error) {
	if is.To != to || is.Phase == Abort {
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is being moved from node %s to node %s "+
			"already (%s)", is.From, is.To, is.Phase)
	}
	return is.wire(), nil
}

// plan looks at what is to be moved.
func (r *Room) plan(ctx context.Context, q *wire.StartMoveRequest) (e entry, m *wire.Move, err error) {
	pv, err := r.Volumes.PV(ctx, q.GetPv())
	if err == nil && pv == nil {
		err = status.Errorf(codes.NotFound, "there is no PersistentVolume %.253q", q.GetPv())
	}
	if err != nil {
		return e, nil, err
	}
	from, err := nodeOf(pv, r.TopologyKey)
	if err != nil {
		return e, nil, err
	}
	e = entry{Policy: pv.Spec.PersistentVolumeReclaimPolicy, Phase: Retain, identity: identity{
		PV: pv.Name, UID: string(pv.UID), Handle: pv.Spec.CSI.VolumeHandle,
		Pool: pv.Spec.CSI.VolumeAttributes[names.StoragePoolParameter], Claim: claimOf(pv), From: from, To: q.GetTo(),
		LeaveSnapshots: q.GetLeaveSnapshots(), Started: r.Now().UTC(), Spec: specOn(pv, r.TopologyKey, q.GetTo()),
	}}
	if e, err = e.settled(); err != nil {
		return e, nil, err
	}
	m = e.wire()
	m.Phase = ""
	m.Problems = r.problemsOf(ctx, pv, e, m)
	e.Used, e.Snapshots, e.Published = m.GetUsed(), m.GetSnapshots(), m.GetPublished()
	return e, m, nil
}

// settled is the entry with the identity that is read of the journal again, and its digest.
func (e entry) settled() (entry, error) {
	data, err := json.Marshal(e.identity)
	e.identity = identity{}
	if err == nil {
		err = json.Unmarshal(data, &e.identity)
	}
	e.Move = e.digest()
	return e, err
}

// problems are why a move would be refused.
type problems []string

func (p *problems) add(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (r *Room) problemsOf(ctx context.Context, pv *corev1.PersistentVolume, e entry, m *wire.Move) []string {
	var why problems
	why.add(e.From == e.To, "the volume is on node %s already", e.To)
	if len(why) > 0 {
		return why
	}
	why.add(e.Claim.UID == "" || pv.Status.Phase != corev1.VolumeBound || pv.DeletionTimestamp != nil,
		"PersistentVolume %s is not bound to a claim (%s)", e.PV, pv.Status.Phase)
	why.add(e.Pool == "", "PersistentVolume %s names no pool (attribute %s)", e.PV, names.StoragePoolParameter)
	room, wrong := r.Targets.Room(ctx, e.From, e.To, e.Pool, e.Handle)
	why, m.Room = append(why, wrong...), room
	switch s, v := r.side(ctx, e.From, e.Handle); {
	case s.there:
		m.Used, m.Snapshots, m.Published = v.GetUsed(), v.GetSnapshots(), v.GetPublished()
		why.add(v.GetFilling(), "the volume is a copy that is not whole yet")
		why.add(v.GetBytes() < e.bytes(), "the volume has %s, and its PersistentVolume says %s: ask for that size of "+
			"the claim, and move it once it has it", bytesize.Format(v.GetBytes()), bytesize.Format(e.bytes()))
		why.add(v.GetNested() > 0, "%d subvolumes of btrfs are in the volume, which are not copied: make directories "+
			"of them", v.GetNested())
		why.add(v.GetEphemeral(), "the volume is an inline one, which ends with its pod")
		why.add(v.GetSnapshots() > 0 && !e.LeaveSnapshots, "the volume has %d snapshots, which stay behind on node "+
			"%s; delete them, or say --leave-snapshots", v.GetSnapshots(), e.From)
		why.add(len(wrong) == 0 && v.GetBytes() > room,
			"node %s has room for a volume of %s in pool %s, and this one has %s", e.To,
			bytesize.Format(room), e.Pool, bytesize.Format(v.GetBytes()))
	case s.gone:
		why.add(true, "node %s is gone: what is on its disk cannot be copied; see docs/how-to/lose-a-node.md", e.From)
	case len(wrong) == 0:
		why.add(s.known, "node %s does not have the volume", e.From)
		why.add(!s.known, "%s", s.why)
	}
	return why
}

// List gives the moves that are under way, the oldest first.
func (r *Room) List(ctx context.Context) ([]*wire.Move, error) {
	all, err := r.load(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	moves := make([]*wire.Move, 0, len(all))
	for _, e := range all {
		moves = append(moves, e.wire())
	}
	slices.SortFunc(moves, func(a, b *wire.Move) int { return int(min(1, max(-1, a.GetStarted()-b.GetStarted()))) })
	return moves, nil
}

// Abort has a volume stay where it is. Without an entry in the journal it ends the mark on the volume's node.
func (r *Room) Abort(ctx context.Context, name string) (*wire.Move, error) {
	all, err := r.load(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	for id, e := range all {
		if e.PV != name {
			continue
		}
		if e.Phase == Abort {
			return e.wire(), nil
		}
		err := r.update(ctx, id, "", func(now *entry) bool {
			if now.abortable() {
				now.Phase, now.Message = Abort, "its move was aborted"
			}
			e = *now
			return true
		})
		switch {
		case err != nil:
			return nil, status.Errorf(codes.Unavailable, "%v; try again", err)
		case e.Phase != Abort:
			return nil, status.Errorf(codes.FailedPrecondition, "its data is on node %s by now: the move comes to its "+
				"end (%s); move it back then", e.To, e.Phase)
		}
		return e.wire(), nil
	}
	return r.unmark(ctx, name)
}

// unmark ends a mark that no entry of the journal is about.
func (r *Room) unmark(ctx context.Context, name string) (*wire.Move, error) {
	pv, err := r.Volumes.PV(ctx, name)
	if err == nil && pv == nil {
		err = status.Errorf(codes.NotFound, "there is no PersistentVolume %.253q", name)
	}
	if err != nil {
		return nil, err
	}
	from, err := nodeOf(pv, r.TopologyKey)
	if err != nil {
		return nil, err
	}
	e := entry{identity: identity{PV: name, Handle: pv.Spec.CSI.VolumeHandle, From: from, Claim: claimOf(pv)}}
	if err := r.leave(ctx, e, ""); err != nil {
		return nil, err
	}
	m := e.wire()
	m.Message = "no move was under way; pods can use it on node " + from
	return m, nil
}
