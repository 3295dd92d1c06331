package fleet

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

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// loginTimeout bounds everything up to a token that passes.
	loginTimeout = 10 * time.Second
	// helloField is the number of Hello in Update.
	helloField = 1
	// maxHelloFields is how many fields a first message may have, features among them.
	maxHelloFields = 64
)

// updateStream is what a node says on its connection.
type updateStream grpc.ServerStreamingClient[wire.Update]

// logIn is a connection up to a token that passes; from then on it is authenticated.
func (f *Fleet) logIn(ctx context.Context, n *newcomer) (p *Peer, stream updateStream, err error) {
	brief, done := context.WithTimeoutCause(ctx, f.loginTimeout, errors.New("it did not show who it is in time"))
	defer done()
	conn := tls.Server(n, f.TLS)
	if err := conn.HandshakeContext(brief); err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", cmp.Or(context.Cause(brief), err))
	}
	client, err := clientOf(conn)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = client.Close()
		}
	}()
	late := context.AfterFunc(brief, func() { n.end(context.Cause(brief)) })
	stream, err = wire.NewNodeClient(client).Session(ctx, &wire.SessionRequest{Version: f.Version},
		grpc.MaxCallRecvMsgSize(wire.MaxUpdate))
	if err == nil {
		p, err = f.readHello(ctx, stream, n.address)
	}
	if err != nil || !late() || !f.unauthenticated.remove(n) {
		return nil, nil, cmp.Or(context.Cause(ctx), err, errCrowded)
	}
	close(n.known)
	p.client, p.end = client, n.end
	return p, stream, nil
}

// readHello reads the first message and verifies who sent it.
func (f *Fleet) readHello(ctx context.Context, stream updateStream, address string) (*Peer, error) {
	hello, err := firstMessage(stream)
	if err != nil {
		return nil, err
	}
	switch {
	case hello.GetTopologyKey() != f.TopologyKey:
		return nil, fmt.Errorf("node %.63q has the topology key %.317q, the controller %q; both come from "+
			"driver.topologyKey", hello.GetNode(), hello.GetTopologyKey(), f.TopologyKey)
	case hello.GetTopologyValue() != hello.GetNode():
		return nil, fmt.Errorf("node %.63q announces volumes of %.63q", hello.GetNode(), hello.GetTopologyValue())
	}
	p := &Peer{
		Name: hello.GetNode(), Version: abridge.Printable(hello.GetVersion()), Since: f.Now(), now: f.Now,
		features: hello.GetFeatures(), metrics: f.metrics, seen: f.Now(), renewed: make(chan string, 1),
	}
	p.expires, err = f.review(ctx, f.logins, address, p.Name, hello.GetToken())
	return p, err
}

// firstMessage reads a Hello. It takes the message for bytes first: two of them can be a whole pool, so that what is
// small on the wire would be large in memory, for anybody who dials.
func firstMessage(stream updateStream) (*wire.Hello, error) {
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
