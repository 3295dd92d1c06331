package fleet_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
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
			hub := fleettest.NewHub(t, local, nil)
			hub.Start(t)
			hub.Connect(t, &linktest.Node{Name: "well"})
			hung, free := &linktest.Node{Name: "hung"}, make(chan struct{})
			address, g := hub.Address, (*gate)(nil)
			if kind == "handlers" {
				hung.Search = func(context.Context, string) (bool, error) { <-free; return false, nil }
			} else {
				g = openGate(t, hub.Address)
				address = g.Addr().String()
			}
			(&fleettest.Hub{Fleet: hub.Fleet, Authority: hub.Authority, Address: address}).Connect(t, hung)
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
				waittest.Until(t, "it counts as not connected", func() bool { return hub.Get("hung") == nil })
			}
		})
	}
}
