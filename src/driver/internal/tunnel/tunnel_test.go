package tunnel_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const local = "127.0.0.1:0"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func logged(t *testing.T, log *loggingtest.Log, want string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	tunneltest.Until(t, "the log says: "+want, func() bool { return strings.Contains(log.String(), want) })
}

func wantCode(t *testing.T, err error, want codes.Code, text string) {
	t.Helper()
	if status.Code(errors.Unwrap(err)) != want && status.Code(err) != want || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, want, text)
	}
}

// service answers one call of CSI.
type service struct {
	pb.UnimplementedControllerServer
}

func (service) DeleteVolume(_ context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	if q.GetVolumeId() == "busy" {
		return nil, status.Error(codes.Aborted, "busy")
	}
	return &pb.DeleteVolumeResponse{}, nil
}

func TestCalls(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	hub.Start(t)
	node := &tunneltest.Node{Name: "a", Register: func(r grpc.ServiceRegistrar) {
		pb.RegisterControllerServer(r, service{})
	}}
	node.Show(nodeapi.PoolStatus{Name: "local", Allocatable: 1 << 40})
	for _, id := range []string{"pvc-1", "pvc-2", "/"} {
		node.Put(nodeapi.VolumeStatus{ID: id, Pool: "local"})
	}
	hub.Connect(t, node)
	p := hub.Get("a")
	if pools, seen := p.Pools(); pools[0].Allocatable != 1<<40 || seen.Before(p.Since) || p.Version != "v1" {
		t.Errorf("shown are %v of %s at %s", pools, p.Version, seen)
	}
	node.Show(nodeapi.PoolStatus{Name: "local", Allocatable: 1 << 39})
	for id, want := range map[string]bool{"pvc-1": true, "pvc-3": false} {
		if _, found, err := p.Find(t.Context(), id); found != want || err != nil {
			t.Errorf("%s: %t, %v", id, found, err)
		}
	}
	listed := 0
	count := func(nodeapi.VolumeStatus) error { listed++; return nil }
	if err := p.Volumes(t.Context(), count); listed != 2 || err != nil {
		t.Errorf("%d volumes, %v", listed, err)
	}
	client := pb.NewControllerClient(p)
	_, err := client.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: "busy"})
	wantCode(t, err, codes.Aborted, "busy")
	_, err = client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{})
	wantCode(t, err, codes.Unimplemented, "")
	calls := map[string]float64{"Aborted DeleteVolume a": 1, "OK Find a": 2, "Unimplemented CreateVolume a": 1}
	if got := tunneltest.Samples(t, hub.Metrics, "hpp_controller_calls_total"); !maps.Equal(got, calls) {
		t.Errorf("calls are %v, want %v", got, calls)
	}
	if got := tunneltest.Samples(t, hub.Metrics, "hpp_controller_hop_seconds"); got[""] != 4 {
		t.Errorf("%v hops measured, want 4", got)
	}
	hub.Forget("a")
	if left := tunneltest.Samples(t, hub.Metrics, "hpp_controller_calls_total"); len(left) != 0 {
		t.Errorf("left of a node that is gone: %v", left)
	}
	tunneltest.Until(t, "the pools are news", func() bool {
		pools, _ := p.Pools()
		return pools[0].Allocatable == 1<<39
	})
	causes := map[string]float64{"changed": 2} // the first, and the change: no refresh has brought it
	if got := tunneltest.Samples(t, node.Metrics, "hpp_node_pushes_total"); !maps.Equal(got, causes) {
		t.Errorf("pushes were %v, want %v", got, causes)
	}
}

// TestUntrusted: a node that cannot trust its controller says why, and connects once it can, without a restart.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		host  string
		from  time.Time
		trust func(right []byte) ([]byte, error)
		want  string
	}{
		"another CA": {
			trust: func([]byte) ([]byte, error) { return tunneltest.NewAuthority(t).PEM, nil },
			want:  "certificate is refused: tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
		"empty CA": {
			trust: func([]byte) ([]byte, error) { return nil, nil }, want: "are not there yet: the controller writes them",
		},
		"CA that cannot be read": {
			trust: func([]byte) ([]byte, error) { return nil, io.ErrUnexpectedEOF }, want: "(--controller-ca): unexpected EOF",
		},
		"clock off by a day": {from: now.Add(24 * time.Hour), want: "is not yet valid"},
		"certificate ended":  {from: now.Add(-24 * time.Hour), want: "certificate has expired"},
		"another name":       {host: "127.0.0.9", want: "is valid for 127.0.0.9, not 127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var right atomic.Bool
			var good, bad *tls.Certificate
			hub := tunneltest.NewHub(t, local, func(c *tunnel.HubConfig) {
				c.TLS.Certificates = nil
				c.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
					if right.Load() {
						return good, nil
					}
					return bad, nil
				}
			})
			good = hub.Authority.Issue(t, tunneltest.Host, now)
			if bad = good; c.trust == nil {
				if c.host == "" {
					c.host = tunneltest.Host
				}
				if c.from.IsZero() {
					c.from = now
				}
				bad = hub.Authority.Issue(t, c.host, c.from)
			}
			hub.Start(t)
			node := &tunneltest.Node{Name: "a"}
			config := node.Config(hub.Address, hub.Authority.PEM)
			config.Authorities = func(context.Context) ([]byte, error) {
				if right.Load() || c.trust == nil {
					return hub.Authority.PEM, nil
				}
				return c.trust(hub.Authority.PEM)
			}
			end, err := tunnel.NewNode(config)
			if err != nil {
				t.Fatal(err)
			}
			tunneltest.Run(t, end)
			logged(t, &node.Log, c.want)
			right.Store(true)
			tunneltest.Until(t, "it is connected", func() bool { return hub.Get("a") != nil })
		})
	}
}

// impostor serves a session of the test's own on one connection.
type impostor struct {
	wire.UnimplementedNodeServer
	session func(out grpc.ServerStreamingServer[wire.News]) error
	found   bool
}

func (i impostor) Session(_ *wire.SessionRequest, out grpc.ServerStreamingServer[wire.News]) error {
	return i.session(out)
}

func (i impostor) Find(context.Context, *wire.FindRequest) (*wire.FindResponse, error) {
	return &wire.FindResponse{Found: i.found}, nil
}

// say is a session that says this, and no more.
func say(news ...*wire.News) func(grpc.ServerStreamingServer[wire.News]) error {
	return func(out grpc.ServerStreamingServer[wire.News]) error {
		for _, n := range news {
			if err := out.Send(n); err != nil {
				return err
			}
		}
		<-out.Context().Done()
		return nil
	}
}

// hello is the first message of a node, changed.
func hello(node string, change func(*wire.Hello)) *wire.News {
	h := &wire.Hello{
		Node: node, Version: "v0", TopologyKey: tunneltest.TopologyKey, TopologyValue: node,
		Token: tunneltest.Token(node, time.Now().Add(time.Hour).Unix()),
	}
	if change != nil {
		change(h)
	}
	return &wire.News{News: &wire.News_Hello{Hello: h}}
}

// dial connects by hand; ended is closed with the connection.
func dial(t *testing.T, hub *tunneltest.Hub, i impostor) (ended <-chan struct{}) {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", hub.Address)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	wire.RegisterNodeServer(server, i)
	go func() { defer close(done); _ = server.Serve(tunnel.NewSingle(conn)) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return done
}

// TestRefused: who does not show that it is the node that it says is cut off, and never was there.
func TestRefused(t *testing.T) {
	t.Parallel()
	token := func(token string) *wire.News { return hello("a", func(h *wire.Hello) { h.Token = token }) }
	for name, c := range map[string]struct {
		session func(grpc.ServerStreamingServer[wire.News]) error
		want    string
	}{
		"no hello":     {say(&wire.News{News: &wire.News_Pools{}}), "its first message does not say who it is"},
		"nothing":      {func(grpc.ServerStreamingServer[wire.News]) error { return nil }, "read its first message: EOF"},
		"key":          {say(hello("a", func(h *wire.Hello) { h.TopologyKey = "zone" })), "come from driver.topologyKey"},
		"value":        {say(hello("a", func(h *wire.Hello) { h.TopologyValue = "b" })), "announces volumes of \\\"b\\\""},
		"many fields":  {say(hello("a", func(h *wire.Hello) { h.Features = make([]string, 64) })), "more than 64 fields"},
		"no token":     {say(token("")), "the token is no JSON web token"},
		"not a JWT":    {say(token("x")), "the token is no JSON web token"},
		"forged":       {say(token(tunneltest.Token("a", 1<<40) + "x")), "the token is refused"},
		"another node": {say(token(tunneltest.Token("b", 1<<40))), "shows a token of node \\\"b\\\""},
		"no end":       {say(token(tunneltest.Token("a", 0))), "does not say when it ends"},
		"too large":    {say(token(strings.Repeat("x", 2<<20))), "did not show who it is in time"},
		"error": {
			func(grpc.ServerStreamingServer[wire.News]) error { return errors.New("no token file") }, "no token file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := tunneltest.NewHub(t, local, func(c *tunnel.HubConfig) {
				c.Changed = func(node string, _ bool) { t.Errorf("node %s was let in", node) }
				review := c.Review
				c.Review = func(ctx context.Context, token string) (string, error) {
					if name != "forged" && name != "no end" {
						t.Error("the API was asked about what says of itself that it is wrong")
					}
					return review(ctx, token)
				}
			})
			if name == "too large" { // what is over its share is not read
				hub.SetPatience(time.Second)
			}
			hub.Start(t)
			<-dial(t, hub, impostor{session: c.session})
			logged(t, hub.Log, c.want)
		})
	}
}

// TestStrangers: who says nothing is cut off, at each step.
func TestStrangers(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	hub.SetPatience(300 * time.Millisecond)
	hub.Start(t)
	raw, err := net.Dial("tcp", hub.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	shaken, err := tls.Dial("tcp", hub.Address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shaken.Close() }()
	<-dial(t, hub, impostor{session: say()})
	for _, conn := range []net.Conn{raw, shaken} {
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, io.EOF) {
			t.Logf("cut off: %v", err)
		}
	}
	logged(t, hub.Log, "did not show who it is in time")
	tunneltest.Until(t, "all three are counted", func() bool {
		all := 0
		for line := range strings.SplitSeq(hub.Log.String(), "\n") {
			if _, after, ok := strings.Cut(line, " count="); ok {
				all += int(after[0] - '0')
			}
		}
		return all == 3
	})
	if len(hub.All()) != 0 {
		t.Errorf("%d nodes are in", len(hub.All()))
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	soon := func() int64 { return time.Now().Add(2 * time.Second).Unix() }
	hub := tunneltest.NewHub(t, local, nil)
	hub.Start(t)
	ended := map[string]<-chan struct{}{
		"not renewed": dial(t, hub, impostor{session: say(hello("x", func(h *wire.Hello) {
			h.Token = tunneltest.Token("x", soon())
		}))}),
		"of another": dial(t, hub, impostor{session: say(
			hello("y", func(h *wire.Hello) { h.Token = tunneltest.Token("y", soon()) }),
			&wire.News{News: &wire.News_Token{Token: tunneltest.Token("x", 1<<40)}})}),
	}
	node := &tunneltest.Node{Name: "a"}
	var reads atomic.Int64
	config := node.Config(hub.Address, hub.Authority.PEM)
	config.Token = func() (string, error) { // each lasts two seconds at most
		if reads.Add(1) == 2 {
			return "", errors.New("the file is being replaced")
		}
		return tunneltest.Token("a", soon()), nil
	}
	end, err := tunnel.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	end.RenewEvery(20 * time.Millisecond)
	tunneltest.Run(t, end)
	for _, e := range ended {
		<-e
	}
	logged(t, hub.Log, "a renewed token is refused")
	logged(t, hub.Log, "its token has expired, and it has shown no other")
	tunneltest.Until(t, "the connection has outlived its first token", func() bool {
		p := hub.Get("a")
		return p != nil && time.Since(p.Since) > 3*time.Second
	})
}

// TestARenewedTokenIsSentOnceAndReviewedAgain: the node sends it only when it is another, and the hub asks the API
// until that answers.
func TestARenewedTokenIsSentOnceAndReviewedAgain(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(time.Hour).Unix()
	first, second := tunneltest.Token("a", long), tunneltest.Token("a", long+1)
	var mu sync.Mutex
	var reviewed []string
	passed := make(chan struct{})
	hub := tunneltest.NewHub(t, local, func(c *tunnel.HubConfig) {
		c.Review = func(ctx context.Context, token string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			switch reviewed = append(reviewed, token); {
			case len(reviewed) == 4:
				close(passed)
			case len(reviewed) > 1:
				return "", errors.New("the API does not answer")
			}
			return tunneltest.Review(ctx, token)
		}
	})
	hub.RetryAfter(10 * time.Millisecond)
	hub.Start(t)
	node := &tunneltest.Node{Name: "a"}
	config := node.Config(hub.Address, hub.Authority.PEM)
	var reads atomic.Int64
	config.Token = func() (string, error) {
		if reads.Add(1) < 10 {
			return first, nil
		}
		return second, nil
	}
	end, err := tunnel.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	end.RenewEvery(5 * time.Millisecond)
	tunneltest.Run(t, end)
	<-passed
	seen := reads.Load() + 10
	tunneltest.Until(t, "it is read again and again", func() bool { return reads.Load() > seen })
	mu.Lock()
	defer mu.Unlock()
	if want := []string{first, second, second, second}; !slices.Equal(reviewed, want) {
		t.Errorf("%d tokens were reviewed, want the first once and the second until it passed", len(reviewed))
	}
}

func TestTheSecondConnectionReplacesTheFirst(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var changes []bool
	hub := tunneltest.NewHub(t, local, func(c *tunnel.HubConfig) {
		c.Changed = func(_ string, connected bool) { mu.Lock(); defer mu.Unlock(); changes = append(changes, connected) }
	})
	stop := hub.Start(t)
	first := dial(t, hub, impostor{session: say(hello("a", nil))})
	tunneltest.Until(t, "the first is connected", func() bool { return hub.Get("a") != nil })
	old := hub.Get("a")
	dial(t, hub, impostor{session: say(hello("a", nil)), found: true})
	<-first
	p := hub.Get("a")
	if _, found, err := p.Find(t.Context(), "pvc-1"); !found || err != nil || p == old || len(hub.All()) != 1 {
		t.Errorf("found %t, %v", found, err)
	}
	logged(t, hub.Log, "the node has made another connection")
	wantCode(t, p.Volumes(t.Context(), nil), codes.Unavailable, "too old for that (v0); upgrade it")
	if err := stop(); err != nil || len(changes) != 3 || !changes[0] || !changes[1] || changes[2] {
		t.Errorf("changes were %v; %v", changes, err)
	}
}

// TestWhatANodeShowsIsBounded: what can be no pool is left out, and a message that is too large ends the connection.
func TestWhatANodeShowsIsBounded(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	hub.Start(t)
	pools := func(count int) *wire.News {
		all := []*wire.Pool{{Name: "local", Id: "AAAA"}, {Name: "No Pool"}, {Name: "nvme", Id: strings.Repeat("x", 65)}}
		return &wire.News{News: &wire.News_Pools{Pools: &wire.Pools{Pools: append(all, make([]*wire.Pool, count)...)}}}
	}
	dial(t, hub, impostor{session: say(hello("a", nil), pools(30_000))})
	tunneltest.Until(t, "its pools are shown", func() bool {
		p := hub.Get("a")
		if p == nil {
			return false
		}
		all, _ := p.Pools()
		return len(all) == 1 && all[0].Name == "local"
	})
	<-dial(t, hub, impostor{session: say(hello("b", nil), pools(40_000))})
	logged(t, hub.Log, "received message larger than max")
}

// TestANodeWithTooMuchToSay: it says what fits.
func TestANodeWithTooMuchToSay(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	hub.Start(t)
	node := &tunneltest.Node{Name: "a"}
	var all []nodeapi.PoolStatus
	for i := range 100 {
		all = append(all, nodeapi.PoolStatus{
			Name: fmt.Sprint("pool-", i), Message: strings.Repeat("long ", 200), Allocatable: 1 << 40,
		})
	}
	node.Show(all...)
	hub.Connect(t, node)
	pools, _ := hub.Get("a").Pools()
	if len(pools) != 100 || pools[0].Allocatable != 1<<40 || !strings.Contains(pools[0].Message, "driver status") {
		t.Errorf("%d pools, the first is %v", len(pools), pools[0])
	}
}

// TestTheNodeStops: what is under way is answered, and nothing new begins.
func TestTheNodeStops(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	hub.Start(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	node := &tunneltest.Node{Name: "a", Search: func(context.Context, string) (bool, error) {
		close(begun)
		<-finish
		return true, nil
	}}
	stop := hub.Connect(t, node)
	p := hub.Get("a")
	running := make(chan error, 1)
	go func() { _, _, err := p.Find(t.Context(), "pvc-1"); running <- err }()
	<-begun
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	tunneltest.Until(t, "it takes no calls", func() bool { return hub.Get("a") == nil })
	_, _, err := p.Find(t.Context(), "pvc-2")
	wantCode(t, err, codes.Unavailable, "")
	close(finish)
	if err := <-running; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	<-stopped
}

// TestTheHubStops: a node finds the next one at the same address by itself.
func TestTheHubStops(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	stop := hub.Start(t)
	begun := make(chan struct{}, 1)
	node := &tunneltest.Node{Name: "a", Search: func(ctx context.Context, _ string) (bool, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return false, ctx.Err()
	}}
	config := node.Config(hub.Address, nil)
	var trusted atomic.Pointer[[]byte]
	trusted.Store(&hub.Authority.PEM)
	config.Authorities = func(context.Context) ([]byte, error) { return *trusted.Load(), nil }
	end, err := tunnel.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	tunneltest.Run(t, end)
	tunneltest.Until(t, "it is connected", func() bool { return hub.Get("a") != nil })
	running := make(chan error, 1)
	go func() { _, _, err := hub.Get("a").Find(t.Context(), "pvc-1"); running <- err }()
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-running; err == nil {
		t.Error("the call under way has an answer")
	}
	next := tunneltest.NewHub(t, hub.Address, nil)
	trusted.Store(&next.Authority.PEM)
	next.Start(t)
	tunneltest.Until(t, "it is connected again", func() bool { return next.Get("a") != nil })
}

// TestTheListenerFails: a hub that can accept nobody ends, although nodes are connected.
func TestTheListenerFails(t *testing.T) {
	t.Parallel()
	hub := tunneltest.NewHub(t, local, nil)
	stop := hub.Start(t)
	hub.Connect(t, &tunneltest.Node{Name: "a"})
	hub.BreakListener()
	tunneltest.Until(t, "the nodes are let go", func() bool { return hub.Get("a") == nil })
	if err := stop(); err == nil || !strings.Contains(err.Error(), "accept nodes") {
		t.Errorf("got %v", err)
	}
}
