package fleet_test

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
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

const local = "127.0.0.1:0"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	switch q.GetVolumeId() {
	case "busy":
		return nil, status.Error(codes.Aborted, "busy")
	case "hostile":
		return nil, status.Error(4712, "a code of its own")
	}
	return &pb.DeleteVolumeResponse{}, nil
}

func TestCalls(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	hub.Start(t)
	node := &linktest.Node{Name: "a", Register: func(r grpc.ServiceRegistrar) {
		pb.RegisterControllerServer(r, service{})
	}}
	node.Show(nodeapi.PoolStatus{Name: "local", Allocatable: 1 << 40})
	for _, id := range []string{"pvc-1", "pvc-2", "/"} {
		node.Put(nodeapi.VolumeStatus{ID: id, Pool: "local", Claim: "shop/da\nta", Enforcement: "\x1b[2J"})
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
	count := func(v nodeapi.VolumeStatus) error {
		if listed++; v.Claim != "shop/da ta" || v.Enforcement != " [2J" {
			t.Errorf("a terminal gets %q and %q", v.Claim, v.Enforcement)
		}
		return nil
	}
	if err := p.Volumes(t.Context(), count); listed != 2 || err != nil {
		t.Errorf("%d volumes, %v", listed, err)
	}
	client := pb.NewControllerClient(p)
	_, err := client.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: "busy"})
	wantCode(t, err, codes.Aborted, "busy")
	_, err = client.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: "hostile"})
	wantCode(t, err, codes.Internal, "a code of its own")
	_, err = client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{})
	wantCode(t, err, codes.Unimplemented, "")
	calls := map[string]float64{
		"Aborted DeleteVolume a": 1, "Internal DeleteVolume a": 1, "OK Find a": 2, "Unimplemented CreateVolume a": 1,
	}
	if got := linktest.Samples(t, hub.Metrics, "hpp_controller_calls_total"); !maps.Equal(got, calls) {
		t.Errorf("calls are %v, want %v", got, calls)
	}
	if got := linktest.Samples(t, hub.Metrics, "hpp_controller_hop_seconds"); got[""] != 5 {
		t.Errorf("%v hops measured, want 5", got)
	}
	waittest.Until(t, "the pools are news", func() bool {
		pools, _ := p.Pools()
		return pools[0].Allocatable == 1<<39
	})
	causes := map[string]float64{"changed": 2} // the first, and the change: no refresh has brought it
	if got := linktest.Samples(t, node.Metrics, "hpp_node_pushes_total"); !maps.Equal(got, causes) {
		t.Errorf("pushes were %v, want %v", got, causes)
	}
	hub.Forget("a")
	if left := linktest.Samples(t, hub.Metrics, "hpp_controller_calls_total"); len(left) != 0 {
		t.Errorf("left of a node that is gone: %v", left)
	}
	waittest.Until(t, "it has logged in again", func() bool { now := hub.Get("a"); return now != nil && now != p })
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := fleet.New(fleet.Config{}); err == nil {
		t.Error("New takes nothing")
	}
}

// impostor serves a session of the test's own on one connection.
type impostor struct {
	wire.UnimplementedNodeServer
	session func(out grpc.ServerStreamingServer[wire.Update]) error
	found   bool
}

func (i impostor) Session(_ *wire.SessionRequest, out grpc.ServerStreamingServer[wire.Update]) error {
	return i.session(out)
}

func (i impostor) Find(context.Context, *wire.FindRequest) (*wire.FindResponse, error) {
	return &wire.FindResponse{Found: i.found}, nil
}

// say is a session that says this, and no more.
func say(news ...*wire.Update) func(grpc.ServerStreamingServer[wire.Update]) error {
	return func(out grpc.ServerStreamingServer[wire.Update]) error {
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
func hello(node string, change func(*wire.Hello)) *wire.Update {
	h := &wire.Hello{
		Node: node, Version: "v0", TopologyKey: linktest.TopologyKey, TopologyValue: node,
		Token: linktest.Token(node, time.Now().Add(time.Hour).Unix()),
	}
	if change != nil {
		change(h)
	}
	return &wire.Update{Update: &wire.Update_Hello{Hello: h}}
}

// dial connects by hand; ended is closed with the connection.
func dial(t *testing.T, hub *fleettest.Hub, i impostor) (ended <-chan struct{}) {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", hub.Address)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	wire.RegisterNodeServer(server, i)
	go func() { defer close(done); _ = server.Serve(link.NewSingle(conn)) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return done
}

// TestRefused: who does not show that it is the node that it says is cut off, and never was there.
func TestRefused(t *testing.T) {
	t.Parallel()
	token := func(token string) *wire.Update { return hello("a", func(h *wire.Hello) { h.Token = token }) }
	for name, c := range map[string]struct {
		session func(grpc.ServerStreamingServer[wire.Update]) error
		want    string
	}{
		"no hello": {say(&wire.Update{Update: &wire.Update_Pools{}}), "its first message does not say who it is"},
		"nothing": {
			func(grpc.ServerStreamingServer[wire.Update]) error { return nil },
			"read its first message: EOF",
		},
		"key": {
			say(hello("a", func(h *wire.Hello) { h.TopologyKey = "zone" })),
			"come from driver.topologyKey",
		},
		"value": {
			say(hello("a", func(h *wire.Hello) { h.TopologyValue = "b" })),
			"announces volumes of \\\"b\\\"",
		},
		"many fields": {
			say(hello("a", func(h *wire.Hello) { h.Features = make([]string, 64) })),
			"more than 64 fields",
		},
		"no token":     {say(token("")), "the token is no JSON web token"},
		"not a JWT":    {say(token("x")), "the token is no JSON web token"},
		"forged":       {say(token(linktest.Token("a", 1<<40) + "x")), "the token is refused"},
		"another node": {say(token(linktest.Token("b", 1<<40))), "shows a token of node \\\"b\\\""},
		"no end":       {say(token(linktest.Token("a", 0))), "does not say when it ends"},
		"too large":    {say(token(strings.Repeat("x", 2<<20))), "did not show who it is in time"},
		"error": {
			func(grpc.ServerStreamingServer[wire.Update]) error { return errors.New("no token file") }, "no token file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := fleettest.NewHub(t, local, func(c *fleet.Config) {
				review := c.Review
				c.Review = func(ctx context.Context, token string) (string, error) {
					if name != "forged" && name != "no end" {
						t.Error("the API was asked about what says of itself that it is wrong")
					}
					return review(ctx, token)
				}
			})
			if name == "too large" { // what is over its share is not read
				hub.SetLoginTimeout(time.Second)
			}
			hub.Start(t)
			<-dial(t, hub, impostor{session: c.session})
			linktest.Logged(t, hub.Log, c.want)
			if in := hub.Remembered(); len(in) > 0 {
				t.Errorf("nodes %v were let in", in)
			}
		})
	}
}

// TestSilence: who says nothing is cut off, at each step.
func TestSilence(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	hub.SetLoginTimeout(300 * time.Millisecond)
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
	linktest.Logged(t, hub.Log, "did not show who it is in time")
	waittest.Until(t, "all three are counted", func() bool {
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

// TestToken: a connection lives no longer than the tokens that it has shown.
func TestToken(t *testing.T) {
	t.Parallel()
	soon := func() int64 { return time.Now().Add(2 * time.Second).Unix() }
	hub := fleettest.NewHub(t, local, nil)
	hub.Start(t)
	ended := map[string]<-chan struct{}{
		"not renewed": dial(t, hub, impostor{session: say(hello("x", func(h *wire.Hello) {
			h.Token = linktest.Token("x", soon())
		}))}),
		"of another": dial(t, hub, impostor{session: say(
			hello("y", func(h *wire.Hello) { h.Token = linktest.Token("y", soon()) }),
			&wire.Update{Update: &wire.Update_Token{Token: linktest.Token("x", 1<<40)}})}),
	}
	for _, e := range ended {
		<-e
	}
	linktest.Logged(t, hub.Log, "a renewed token is refused")
	linktest.Logged(t, hub.Log, "its token has expired, and it has shown no other")
}

// TestARenewedTokenIsReviewedAgain: the API is asked until it answers.
func TestARenewedTokenIsReviewedAgain(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(time.Hour).Unix()
	first, second := linktest.Token("a", long), linktest.Token("a", long+1)
	var mu sync.Mutex
	var reviewed []string
	passed := make(chan struct{})
	hub := fleettest.NewHub(t, local, func(c *fleet.Config) {
		c.Review = func(ctx context.Context, token string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			switch reviewed = append(reviewed, token); {
			case len(reviewed) == 4:
				close(passed)
			case len(reviewed) > 1:
				return "", errors.New("the API does not answer")
			}
			return fleettest.Review(ctx, token)
		}
	})
	hub.RetryAfter(10 * time.Millisecond)
	hub.Start(t)
	dial(t, hub, impostor{session: say(
		hello("a", func(h *wire.Hello) { h.Token = first }), &wire.Update{Update: &wire.Update_Token{Token: second}})})
	<-passed
	time.Sleep(50 * time.Millisecond) // so that one more would show
	mu.Lock()
	defer mu.Unlock()
	if want := []string{first, second, second, second}; !slices.Equal(reviewed, want) {
		t.Errorf("%d tokens were reviewed, want the first once and the second until it passed", len(reviewed))
	}
}

func TestTheSecondConnectionReplacesTheFirst(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	stop := hub.Start(t)
	first := dial(t, hub, impostor{session: say(hello("a", nil))})
	waittest.Until(t, "the first is connected", func() bool { return hub.Get("a") != nil })
	old := hub.Get("a")
	dial(t, hub, impostor{session: say(hello("a", nil)), found: true})
	<-first
	p := hub.Get("a")
	if _, found, err := p.Find(t.Context(), "pvc-1"); !found || err != nil || p == old || len(hub.All()) != 1 {
		t.Errorf("found %t, %v", found, err)
	}
	linktest.Logged(t, hub.Log, "the node has made another connection")
	wantCode(t, p.Volumes(t.Context(), nil), codes.Unavailable, "too old for that (v0); upgrade it")
	if left := hub.Left(); len(left) > 0 {
		t.Errorf("nodes %v count as away", left)
	}
	if err := stop(); err != nil || !slices.Equal(hub.Left(), []string{"a"}) {
		t.Errorf("nodes %v have left; %v", hub.Left(), err)
	}
}

// TestWhatANodeShowsIsBounded: what can be no pool, or is there already, is left out, and a message that is too large
// ends the connection.
func TestWhatANodeShowsIsBounded(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	hub.Start(t)
	pools := func(count int) *wire.Update {
		all := []*wire.Pool{
			{Name: "local", Id: "AAAA", Warnings: []*wire.Warning{
				{Reason: "NodeNotReady"}, {Reason: "VolumeLost", Volumes: []string{"b", "a", "b", "../c"}},
			}},
			{Name: "No Pool"},
			{Name: "nvme", Id: strings.Repeat("x", 65)},
			{Name: "local", Id: "BBBB"},
		}
		all = append(all, make([]*wire.Pool, count)...)
		return &wire.Update{Update: &wire.Update_Pools{Pools: &wire.Pools{Pools: all}}}
	}
	dial(t, hub, impostor{session: say(hello("a", nil), pools(30_000))})
	waittest.Until(t, "its pools are shown", func() bool {
		p := hub.Get("a")
		if p == nil {
			return false
		}
		all, _ := p.Pools()
		return len(all) == 1 && all[0].Name == "local" && all[0].ID == "AAAA" && len(all[0].Warnings) == 1 &&
			slices.Equal(all[0].Warnings[0].Volumes, []string{"a", "b"})
	})
	many := make([]*wire.Pool, 4000)
	for i := range many {
		many[i] = &wire.Pool{Name: fmt.Sprint("p", i)}
	}
	news := &wire.Update{Update: &wire.Update_Pools{Pools: &wire.Pools{Pools: many}}}
	dial(t, hub, impostor{session: say(hello("c", nil), news)})
	waittest.Until(t, "some of its pools are shown", func() bool {
		p := hub.Get("c")
		if p == nil {
			return false
		}
		all, _ := p.Pools()
		return len(all) == 256
	})
	<-dial(t, hub, impostor{session: say(hello("b", nil), pools(40_000))})
	linktest.Logged(t, hub.Log, "received message larger than max")
}

// TestTheListenerFails: a hub that can accept nobody ends, although nodes are connected.
func TestTheListenerFails(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	stop := hub.Start(t)
	hub.Connect(t, &linktest.Node{Name: "a"})
	hub.BreakListener()
	waittest.Until(t, "the nodes are let go", func() bool { return hub.Get("a") == nil })
	if err := stop(); err == nil || !strings.Contains(err.Error(), "accept nodes") {
		t.Errorf("got %v", err)
	}
}
