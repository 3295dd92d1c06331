package link

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// updateInterval is how often a node looks for something new to say, tokenInterval how often for a new token: the
	// kubelet renews that when a fifth of its hour is left.
	updateInterval, tokenInterval = 2 * time.Second, 5 * time.Minute
	// refresh is how old what the controller shows of the pools may be.
	refresh = time.Minute
	// coarse is what sizes are rounded to before they count as new, in bytes: free space changes with every write.
	coarse = 64 << 20
)

// session is the node's service on one connection.
type session struct {
	wire.UnimplementedNodeServer
	*Node
	stopping context.Context //nolint:containedctx // the connection's end, which outlives the calls on it
}

// Session implements wire.NodeServer. It ends before the node stops, so that no new call comes while those under way
// end.
func (s *session) Session(_ *wire.SessionRequest, out grpc.ServerStreamingServer[wire.Update]) error {
	token, err := s.Token()
	if err != nil {
		return status.Errorf(codes.Unavailable, "the node cannot read its token: %v", err)
	}
	hello := &wire.Hello{
		Node: s.Node.Node, Version: s.Version, Token: token,
		TopologyKey: s.TopologyKey, TopologyValue: s.Node.Node,
		Features: []string{
			wire.FeatureVolumes, wire.FeatureShared, wire.FeatureSince, wire.FeatureCopy, wire.FeatureMove,
		},
	}
	if err := out.Send(&wire.Update{Update: &wire.Update_Hello{Hello: hello}}); err != nil {
		return err
	}
	update, renewal := time.NewTicker(updateInterval), time.NewTicker(s.Renew)
	defer update.Stop()
	defer renewal.Stop()
	said := sent{out: out, token: token, pushes: s.pushes}
	for err = said.sendPools(s.Source.Pools()); err == nil; {
		select {
		case <-out.Context().Done():
			return nil
		case <-s.stopping.Done():
			return nil
		case <-update.C:
			err = said.sendPools(s.Source.Pools())
		case <-renewal.C:
			err = said.sendToken(s.Token())
		}
	}
	return err
}

// sent is what the controller knows already.
type sent struct {
	out   grpc.ServerStreamingServer[wire.Update]
	known []*wire.Pool
	at    time.Time
	token string
	// pushes count messages about pools, by their cause.
	pushes *prometheus.CounterVec
}

func (t *sent) sendPools(status []nodeapi.PoolStatus) error {
	now := make([]*wire.Pool, 0, len(status))
	for _, p := range status {
		now = append(now, wire.FromPool(p))
	}
	cause := "changed"
	if t.known != nil && slices.EqualFunc(t.known, now, saysTheSame) {
		if time.Since(t.at) < refresh {
			return nil
		}
		cause = "refresh"
	}
	t.known, t.at = now, time.Now()
	t.pushes.WithLabelValues(cause).Inc()
	return t.out.Send(fitUpdate(now))
}

// fitUpdate is a message with pools that the controller reads. If all that they say is too much, it goes without the
// texts, the volumes that warnings name, and the nodes that have left something in shared ones.
func fitUpdate(pools []*wire.Pool) *wire.Update {
	update := &wire.Update{Update: &wire.Update_Pools{Pools: &wire.Pools{Pools: pools}}}
	if proto.Size(update) <= wire.MaxUpdate {
		return update
	}
	brief := make([]*wire.Pool, len(pools))
	for i, p := range pools {
		brief[i] = proto.CloneOf(p)
		brief[i].Path, brief[i].EnforcementReason, brief[i].NodeDirs = "", "", nil
		for _, w := range brief[i].GetWarnings() {
			w.Message, w.Volumes = "", nil
		}
		brief[i].Message = "too much to say: `driver status` in the pod of its node has it"
	}
	return &wire.Update{Update: &wire.Update_Pools{Pools: &wire.Pools{Pools: brief}}}
}

// sendToken sends the token if it is another now. If it cannot be read, the controller ends the session when the old
// one expires.
func (t *sent) sendToken(token string, err error) error {
	if err != nil || token == t.token {
		return nil //nolint:nilerr // see above
	}
	t.token = token
	return t.out.Send(&wire.Update{Update: &wire.Update_Token{Token: token}})
}

// saysTheSame reports whether what a pool says is as good as what it said before, whenever that was.
func saysTheSame(a, b *wire.Pool) bool { return proto.Equal(roundSizes(a), roundSizes(b)) }

func roundSizes(p *wire.Pool) *wire.Pool {
	r := proto.CloneOf(p)
	for _, size := range []*int64{&r.Size, &r.Free, &r.Promised, &r.Growable, &r.Allocatable} {
		*size -= *size % coarse
	}
	r.Seen, r.OldestTrash, r.TrashDue = 0, 0, 0
	return r
}

func (s *session) Find(ctx context.Context, q *wire.FindRequest) (*wire.FindResponse, error) {
	pool, found, err := s.Source.Find(ctx, q.GetId())
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &wire.FindResponse{Found: found, Pool: pool}, nil
}

func (s *session) Share(_ context.Context, q *wire.ShareRequest) (*wire.ShareResponse, error) {
	s.Source.Share(q.GetPools())
	return &wire.ShareResponse{}, nil
}

func (s *session) Volumes(q *wire.VolumesRequest, out grpc.ServerStreamingServer[wire.Volume]) error {
	send := func(v nodeapi.VolumeStatus) error {
		if v.SnapshotOf != "" && !q.GetSnapshots() {
			return nil
		}
		return out.Send(wire.FromVolume(v))
	}
	if err := s.Source.Volumes(out.Context(), send); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// reportHandling lets the controller know how much of a call's time was its way.
func reportHandling(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start := time.Now()
	answer, err := handle(ctx, q)
	_ = grpc.SetTrailer(ctx, metadata.Pairs(wire.HandlingKey, strconv.FormatInt(int64(time.Since(start)), 10)))
	return answer, err
}
