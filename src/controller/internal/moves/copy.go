package moves

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// copy has the data brought to the target.
func (r *Room) copy(ctx context.Context, e entry, s seen) (again bool, err error) {
	if !r.takeTurn(e.Handle) {
		r.say(ctx, e.Handle, fmt.Sprintf("%d volumes are copied already: it waits for its turn", copiesAtOnce))
		return false, nil
	}
	defer r.endTurn(e.Handle)
	m, err := e.request(s.source)
	if err != nil {
		return false, err
	}
	err = r.Nodes.Bring(ctx, m)
	if status.Code(err) == codes.Aborted {
		r.note(ctx, e, status.Convert(err).Message())
		return false, nil
	}
	return err == nil, err
}

func (r *Room) takeTurn(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.copying) >= copiesAtOnce && !r.copying[id] {
		return false
	}
	r.copying[id] = true
	return true
}

func (r *Room) endTurn(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.copying, id)
}

// request asks for the volume as the source is. What that says of itself is bounded; whose it is, and in which pool, it
// does not say.
func (e entry) request(is *wire.MovingVolume) (m csi.Moving, err error) {
	if is.GetBytes() < e.bytes() || is.GetUid() < 0 || is.GetGid() < 0 || is.GetInodes() < 0 ||
		!nodeapi.IsOnDelete(is.GetOnDelete()) {
		return m, status.Errorf(codes.Internal, "node %s describes volume %s with values that no volume has",
			e.From, e.Handle)
	}
	parameters := map[string]string{
		names.StoragePoolParameter: e.Pool, nodeapi.KeyOnDelete: is.GetOnDelete(),
		nodeapi.KeyDirectoryMode: fmt.Sprintf("%04o", is.GetMode()&0o3777),
		nodeapi.KeyUID:           strconv.FormatInt(is.GetUid(), 10),
		nodeapi.KeyGID:           strconv.FormatInt(is.GetGid(), 10),
		nodeapi.KeyClaimNS:       e.Claim.Namespace, nodeapi.KeyClaimName: e.Claim.Name,
	}
	if !is.GetInodesDerived() && is.GetInodes() > 0 {
		parameters[nodeapi.KeyInodeLimit] = strconv.FormatInt(is.GetInodes(), 10)
	}
	return csi.Moving{
		ID: e.Handle, From: e.From, To: e.To, Move: e.Move, Bytes: is.GetBytes(), Parameters: parameters,
	}, nil
}

// note writes how far a copy is into the journal, but not each time.
func (r *Room) note(ctx context.Context, e entry, says string) {
	now := r.Now()
	r.mu.Lock()
	due := now.Sub(r.noted[e.Handle]) >= noteInterval
	if due {
		r.noted[e.Handle] = now
	}
	r.mu.Unlock()
	if !due {
		return
	}
	_, v := r.side(ctx, e.To, e.Handle)
	_ = r.update(ctx, e.Handle, e.Phase, func(e *entry) bool {
		e.Copied, e.Message, e.Published = max(0, v.GetCopied()), abridge.Line(says), false
		return true
	})
}
