package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// FuzzExpiryOf: a token gives a time or an error.
func FuzzExpiryOf(f *testing.F) {
	for _, seed := range []string{
		"", "..", "a.b.c", "e30.e30.", "e30.eyJleHAiOjF9.x", "e30.eyJleHAiOi0xfQ.x", "e30.eyJleHAiOjFlOTl9.x",
		"e30.bnVsbA.x",
		"e30.eyJleHAiOiIxIn0.x", "....",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if at, err := expiryOf(token); (err == nil) == at.IsZero() {
			t.Errorf("%s, %v", at, err)
		}
	})
}

// received is a stream of what a node may send, as it comes over the wire.
type received struct {
	grpc.ServerStreamingClient[wire.Update]
	messages [][]byte
}

func (r *received) RecvMsg(into any) error {
	message, ok := into.(proto.Message)
	if len(r.messages) == 0 || !ok {
		return io.EOF
	}
	err := proto.Unmarshal(r.messages[0], message)
	r.messages = r.messages[1:]
	return err
}

func (r *received) Recv() (*wire.Update, error) {
	update := new(wire.Update)
	return update, r.RecvMsg(update)
}

// nowhere is a cluster that knows of no node; what no test expects panics.
type nowhere struct{ Cluster }

func (nowhere) NodesWithDriver(map[string]string) []string { return nil }

// FuzzUpdates: whatever anybody says, a node is let in only under the name that its token was reviewed for, and what it
// says first stays about as large in memory as it was on the wire.
func FuzzUpdates(f *testing.F) {
	const token = "e30.eyJleHAiOjk5OTk5OTk5OTk5fQ.x"
	encode := func(n *wire.Update) []byte {
		data, err := proto.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		return data
	}
	hello := encode(&wire.Update{Update: &wire.Update_Hello{Hello: &wire.Hello{
		Node: "a", TopologyKey: "key", TopologyValue: "a", Token: token,
	}}})
	pools := encode(&wire.Update{Update: &wire.Update_Pools{Pools: &wire.Pools{Pools: []*wire.Pool{nil, {Size: -1}}}}})
	f.Add(hello, pools)
	f.Add(hello, encode(&wire.Update{Update: &wire.Update_Token{Token: "x"}}))
	f.Add(hello, hello)
	f.Add(pools, hello)
	f.Add([]byte{}, []byte{0xff})
	f.Add(bytes.Repeat([]byte{0x1a, 0}, 1000), hello)                                      // pools, again and again
	f.Add(append([]byte{0x0a, 0xd0, 0x0f}, bytes.Repeat([]byte{0x1a, 0}, 1000)...), hello) // 1,000 features
	f.Add(append(hello, hello...), pools)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f}, hello)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		bound := ""
		all, err := New(Config{
			Cluster: nowhere{}, Address: ":0", TopologyKey: "key", Version: "v1",
			TLS:       &tls.Config{MinVersion: tls.VersionTLS13},
			NodeGrace: time.Minute, GoneAfter: time.Minute,
			Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Claimed: func(string) (string, error) { return "a", nil },
			Review: func(_ context.Context, shown string) (string, error) {
				if shown != token {
					return "", errors.New("refused")
				}
				bound = "a"
				return bound, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		stream := &received{messages: [][]byte{first, second}}
		p, err := all.readHello(t.Context(), stream, "10.0.0.1")
		if err != nil {
			return
		}
		if len(p.features) > maxHelloFields {
			t.Fatalf("a node was let in with %d features", len(p.features))
		}
		if p.Name != bound || bound != "a" || p.expires.IsZero() {
			t.Fatalf("node %q was let in with the token of %q", p.Name, bound)
		}
		p.expiry = time.AfterFunc(time.Hour, func() {})
		defer p.expiry.Stop()
		if err := receiveUpdates(stream, p); err == nil {
			t.Error("it listens no more, and says not why")
		}
		if pools, _ := p.Pools(); p.Name != "a" || len(all.All()) != 0 || len(pools) > len(second) {
			t.Errorf("%q has %d pools", p.Name, len(pools))
		}
	})
}
