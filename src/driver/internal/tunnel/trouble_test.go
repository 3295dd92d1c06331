package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
)

// gate passes bytes on between node and hub until it is shut; then both see a connection on which nothing comes.
type gate struct {
	net.Listener
	shut atomic.Bool
}

func openGate(t *testing.T, target string) *gate {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", local)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: listener}
	ctx := context.WithoutCancel(t.Context())
	var pipes sync.WaitGroup
	pipes.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := new(net.Dialer).DialContext(ctx, "tcp", target)
			if err != nil {
				_ = from.Close()
				continue
			}
			t.Cleanup(func() { _, _ = from.Close(), to.Close() })
			pipes.Go(func() { g.pass(from, to) })
			pipes.Go(func() { g.pass(to, from) })
		}
	})
	t.Cleanup(pipes.Wait) // after what was added later: the connections are closed before
	t.Cleanup(func() { _ = listener.Close() })
	return g
}

func (g *gate) pass(from, to net.Conn) {
	_, _ = io.Copy(writer(func(p []byte) (int, error) {
		if g.shut.Load() {
			return len(p), nil
		}
		return to.Write(p)
	}), from)
	if !g.shut.Load() {
		_ = to.Close()
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestAHungNode: calls to a node that does not answer end by their deadline, and others do not wait for it.
func TestAHungNode(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"handlers", "connection"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			hub := tunneltest.NewHub(t, local, nil)
			hub.Start(t)
			hub.Connect(t, &tunneltest.Node{Name: "well"})
			hung, free := &tunneltest.Node{Name: "hung"}, make(chan struct{})
			address, g := hub.Address, (*gate)(nil)
			if kind == "handlers" {
				hung.Search = func(context.Context, string) (bool, error) { <-free; return false, nil }
			} else {
				g = openGate(t, hub.Address)
				address = g.Addr().String()
			}
			(&tunneltest.Hub{Hub: hub.Hub, Authority: hub.Authority, Address: address}).Connect(t, hung)
			t.Cleanup(func() { close(free) })
			if g != nil {
				g.shut.Store(true)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			answers := make(chan error, 20)
			for range 20 {
				go func() { _, _, err := hub.Get("hung").Find(ctx, "pvc-1"); answers <- err }()
			}
			for range 20 {
				if _, _, err := hub.Get("well").Find(t.Context(), "pvc-1"); err != nil {
					t.Error(err)
				}
			}
			for range 20 {
				wantCode(t, <-answers, codes.DeadlineExceeded, "")
			}
			if kind == "connection" { // its keepalive is not answered
				tunneltest.Until(t, "it counts as not connected", func() bool { return hub.Get("hung") == nil })
			}
		})
	}
}

// TestTheServiceHasManyAddresses: a node connects to each replica of the controller, also to one that comes later.
func TestTheServiceHasManyAddresses(t *testing.T) {
	t.Parallel()
	one := tunneltest.NewHub(t, local, nil)
	_, port, err := net.SplitHostPort(one.Address)
	if err != nil {
		t.Fatal(err)
	}
	two := tunneltest.NewHub(t, "127.0.0.2:"+port, nil)
	one.Start(t)
	stop := two.Start(t)
	node := &tunneltest.Node{Name: "a"}
	end, err := tunnel.NewNode(node.Config(one.Address, append(one.Authority.PEM, two.Authority.PEM...)))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	end.LookUp(func(_ context.Context, host string) ([]string, error) {
		switch asked.Add(1) {
		case 1:
			return nil, errors.New("no such host " + host)
		case 2, 3:
			return []string{"127.0.0.1", "127.0.0.2"}, nil
		default:
			return []string{"127.0.0.1"}, nil
		}
	})
	end.ResolveEvery(20 * time.Millisecond)
	tunneltest.Run(t, end)
	logged(t, &node.Log, "no such host 127.0.0.1")
	tunneltest.Until(t, "both are connected", func() bool { return one.Get("a") != nil && two.Get("a") != nil })
	p := one.Get("a")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	tunneltest.Until(t, "the one that is gone is dialled no more", func() bool { return asked.Load() > 20 })
	if one.Get("a") != p {
		t.Error("the connection to the one that stays has ended")
	}
}

// TestWhatRepeatsItselfIsLoggedOnce: a Service, and then a controller, that is away.
func TestWhatRepeatsItselfIsLoggedOnce(t *testing.T) {
	t.Parallel()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", local)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	node := &tunneltest.Node{Name: "a"}
	config := node.Config(closed.Addr().String(), tunneltest.NewAuthority(t).PEM)
	end, err := tunnel.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	end.LookUp(func(context.Context, string) ([]string, error) {
		if n := asked.Add(1); n < 20 {
			return nil, fmt.Errorf("lookup from port %d: no such host", n)
		}
		return []string{"127.0.0.1"}, nil
	})
	end.ResolveEvery(time.Millisecond)
	end.PauseFor(time.Millisecond)
	tunneltest.Run(t, end)
	logged(t, &node.Log, "no connection to the controller")
	tunneltest.Until(t, "it has been away for long", func() bool { return asked.Load() > 200 })
	for _, what := range []string{"cannot find the controller's Service", "no connection to the controller"} {
		if n := strings.Count(node.Log.String(), what); n != 1 {
			t.Errorf("%q was logged %d times", what, n)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := tunnel.NewHub(tunnel.HubConfig{}); err == nil {
		t.Error("NewHub takes nothing")
	}
	node := tunneltest.Node{Name: "a"}
	for name, change := range map[string]func(*tunnel.NodeConfig){
		"no port": func(c *tunnel.NodeConfig) { c.Address = "controller" },
		"no name": func(c *tunnel.NodeConfig) { c.Node = "" },
		"nothing": func(c *tunnel.NodeConfig) { *c = tunnel.NodeConfig{} },
	} {
		c := node.Config(local, nil)
		change(&c)
		if _, err := tunnel.NewNode(c); err == nil {
			t.Errorf("%s: NewNode takes it", name)
		}
	}
}
