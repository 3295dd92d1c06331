package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// maxNews bounds one message of a session, in bytes; some hundred pools are less.
	maxNews = 64 << 10
	// helloField is the number of Hello in News.
	helloField = 1
	// maxHelloFields is how many fields a first message may have, features among them.
	maxHelloFields = 64
)

// newsStream is what a node says on its connection.
type newsStream grpc.ServerStreamingClient[wire.News]

// login is a connection up to a token that passes; from then on it is no stranger.
func (h *Hub) login(ctx context.Context, n *stranger) (p *Peer, stream newsStream, err error) {
	brief, done := context.WithTimeoutCause(ctx, h.patience, errors.New("it did not show who it is in time"))
	defer done()
	conn := tls.Server(n, h.TLS)
	if err := conn.HandshakeContext(brief); err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", cmp.Or(context.Cause(brief), err))
	}
	client, err := dialled(conn)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = client.Close()
		}
	}()
	late := context.AfterFunc(brief, func() { n.end(context.Cause(brief)) })
	stream, err = wire.NewNodeClient(client).Session(ctx, &wire.SessionRequest{Version: h.Version},
		grpc.MaxCallRecvMsgSize(maxNews))
	if err == nil {
		p, err = h.greet(ctx, stream, n.address)
	}
	if err != nil || !late() || !h.strangers.leave(n) {
		return nil, nil, cmp.Or(context.Cause(ctx), err, errCrowded)
	}
	close(n.known)
	p.client, p.end = client, n.end
	return p, stream, nil
}

// greet reads the first message and verifies who sent it.
func (h *Hub) greet(ctx context.Context, stream newsStream, address string) (*Peer, error) {
	hello, err := firstMessage(stream)
	if err != nil {
		return nil, err
	}
	switch {
	case hello.GetTopologyKey() != h.TopologyKey:
		return nil, fmt.Errorf("node %.63q has the topology key %.317q, the controller %q; both come from driver.topologyKey",
			hello.GetNode(), hello.GetTopologyKey(), h.TopologyKey)
	case hello.GetTopologyValue() != hello.GetNode():
		return nil, fmt.Errorf("node %.63q announces volumes of %.63q", hello.GetNode(), hello.GetTopologyValue())
	}
	p := &Peer{
		Name: hello.GetNode(), Version: hello.GetVersion(), Since: time.Now(),
		features: hello.GetFeatures(), metrics: h.metrics, seen: time.Now(), renewed: make(chan string, 1),
	}
	p.expires, err = h.review(ctx, h.logins, address, p.Name, hello.GetToken())
	return p, err
}

// firstMessage reads a Hello. It takes the message for bytes first: two of them can be a whole pool, so that what is
// small on the wire would be large in memory, for anybody who dials.
func firstMessage(stream newsStream) (*wire.Hello, error) {
	var raw emptypb.Empty // keeps what it does not know
	if err := stream.RecvMsg(&raw); err != nil {
		return nil, fmt.Errorf("read its first message: %w", err)
	}
	number, kind, size := protowire.ConsumeTag(raw.ProtoReflect().GetUnknown())
	message := raw.ProtoReflect().GetUnknown()[max(0, size):]
	if number != helloField || kind != protowire.BytesType {
		return nil, errors.New("its first message does not say who it is")
	}
	said, size := protowire.ConsumeBytes(message)
	if size != len(message) {
		return nil, errors.New("its first message says more than who it is")
	}
	fields := 0
	for rest := said; len(rest) > 0; fields++ {
		_, _, size := protowire.ConsumeField(rest)
		if size < 0 || fields == maxHelloFields {
			return nil, fmt.Errorf("its first message has more than %d fields, or cannot be read", maxHelloFields)
		}
		rest = rest[size:]
	}
	hello := new(wire.Hello)
	if err := proto.Unmarshal(said, hello); err != nil {
		return nil, fmt.Errorf("read its first message: %w", err)
	}
	return hello, nil
}
