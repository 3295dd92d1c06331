package fleet_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// dialFrom is dial from an address of this machine.
func dialFrom(t *testing.T, address string, hub *fleettest.Hub, i impostor) (ended <-chan struct{}) {
	t.Helper()
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}},
		Config:    &tls.Config{InsecureSkipVerify: true},
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", hub.Address)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(grpc.ReadBufferSize(0), grpc.WriteBufferSize(0)), make(chan struct{})
	wire.RegisterNodeServer(server, i)
	go func() { defer close(done); _ = server.Serve(link.NewSingle(conn)) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return done
}

// TestTheUnauthenticatedAreBounded: what they say stays small in memory, whatever it is, and nodes come in past them.
// It runs alone: the heap is that of all tests.
func TestTheUnauthenticatedAreBounded(t *testing.T) {
	const most, more, nodes, heap = 512, 60, 500, 200 << 20
	release := make(chan struct{})
	hub := fleettest.NewHub(t, local, func(c *fleet.Config) {
		c.Review = func(ctx context.Context, token string) (string, error) {
			if !strings.HasSuffix(token, ".made-up") {
				return fleettest.Review(ctx, token)
			}
			select {
			case <-release:
				time.Sleep(20 * time.Millisecond)
			case <-ctx.Done():
			}
			return "", errors.New("the token is refused")
		}
	})
	hub.SetLoginTimeout(time.Hour)
	hub.Start(t)
	waits := hello("nobody", func(h *wire.Hello) {
		h.Token = strings.Replace(h.GetToken(), ".signature", ".made-up", 1)
		h.Version = strings.Repeat("x", 12<<10)
	})
	for range most {
		dialFrom(t, "127.0.0.1", hub, impostor{session: say(waits)})
	}
	waittest.Until(t, "all are there", func() bool { return hub.Unauthenticated() == most })
	// 256 Ki empty pools: 512 KiB on the wire, and some 100 MiB in memory if anybody read them.
	pools := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil)
	const numberInUpdate = 3
	large := protowire.AppendTag(nil, numberInUpdate, protowire.BytesType)
	large = protowire.AppendBytes(large, bytes.Repeat(pools, 256<<10))
	raw := new(wire.Update)
	raw.ProtoReflect().SetUnknown(large)
	for range more {
		dialFrom(t, "127.0.0.3", hub, impostor{session: say(raw)})
	}
	var most64 uint64
	var is runtime.MemStats
	for range 100 { // what they say comes
		runtime.ReadMemStats(&is)
		most64 = max(most64, is.HeapAlloc)
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d unauthenticated: the heap of both ends is %d MiB, of which garbage is a part", most, most64>>20)
	if most64 > heap {
		t.Errorf("the unauthenticated have %d bytes", most64)
	}
	close(release)
	begin := time.Now()
	dialFrom(t, "127.0.0.2", hub, impostor{session: say(hello("other", nil))})
	waittest.Until(t, "a node of another address is in", func() bool { return hub.Get("other") != nil })
	t.Logf("a node of another address is in after %s, past %d others", time.Since(begin), hub.Unauthenticated())
	begin = time.Now()
	for i := range nodes {
		dialFrom(t, "127.0.0.1", hub, impostor{session: say(hello(fmt.Sprint("node-", i), nil))})
	}
	waittest.Until(t, "all nodes of their address are in", func() bool { return len(hub.All()) == nodes+1 })
	t.Logf("%d nodes of their address are in after %s", nodes, time.Since(begin))
}

// TestTheUnauthenticatedInAHurry: those that come again and again with tokens that only the API can refuse do not keep
// a node of another address out.
func TestTheUnauthenticatedInAHurry(t *testing.T) {
	t.Parallel()
	var reviews atomic.Int64
	hub := fleettest.NewHub(t, local, func(c *fleet.Config) {
		c.Review = func(ctx context.Context, token string) (string, error) {
			if strings.HasSuffix(token, ".made-up") {
				reviews.Add(1)
				time.Sleep(time.Millisecond)
				return "", errors.New("the token is refused")
			}
			return fleettest.Review(ctx, token)
		}
	})
	hub.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	var rushing sync.WaitGroup
	defer rushing.Wait()
	defer stop()
	madeUp := hello("a", func(h *wire.Hello) { h.Token = strings.Replace(h.GetToken(), ".signature", ".made-up", 1) })
	for range 20 {
		rushing.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-dialFrom(t, "127.0.0.1", hub, impostor{session: say(madeUp)}):
				case <-ctx.Done():
				}
			}
		})
	}
	waittest.Until(t, "their tokens are reviewed", func() bool { return reviews.Load() > 50 })
	begin, before := time.Now(), reviews.Load()
	dialFrom(t, "127.0.0.2", hub, impostor{session: say(hello("a", nil))})
	waittest.Until(t, "the node is in", func() bool { return hub.Get("a") != nil })
	t.Logf("a node is in after %s and %d reviews of others", time.Since(begin), reviews.Load()-before)
	linktest.Logged(t, hub.Log, "connections have ended before they showed a node's token")
	if lines := strings.Count(hub.Log.String(), "the token is refused"); int64(lines) > reviews.Load()/10 {
		t.Errorf("%d lines for %d refusals", lines, reviews.Load())
	}
}
