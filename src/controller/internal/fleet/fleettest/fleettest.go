// Package fleettest gives tests the controller's end of connections, over real TLS.
package fleettest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// Hub is a controller's end on a port of its own.
type Hub struct {
	*fleet.Fleet
	Authority *linktest.Authority
	Address   string
	Log       *loggingtest.Log
	Metrics   *prometheus.Registry
	listener  net.Listener
}

// nowhere is a cluster that knows of no node.
type nowhere struct{}

func (nowhere) Synced() bool                               { return true }
func (nowhere) NodesWithDriver(map[string]string) []string { return nil }
func (nowhere) Leads() bool                                { return true }
func (nowhere) TellNode(string, string, string, string)    {}
func (nowhere) NodeGone(context.Context, string) (since time.Time, gone bool, err error) {
	return since, false, nil
}

// NewHub makes one that is served by Start; change may be nil.
func NewHub(t testing.TB, address string, change func(*fleet.Config)) *Hub {
	t.Helper()
	h := &Hub{Authority: linktest.NewAuthority(t), Log: &loggingtest.Log{}, Metrics: prometheus.NewRegistry()}
	certificate := h.Authority.Issue(t, linktest.Host, time.Now().Add(-time.Minute))
	c := fleet.Config{
		Cluster: nowhere{}, Address: address,
		TLS:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}},
		TopologyKey: linktest.TopologyKey, Version: "v1", Claimed: Claimed, Review: Review,
		NodeGrace: time.Minute, GoneAfter: 10 * time.Minute,
		Metrics: h.Metrics, Log: h.Log.Logger(), Now: time.Now,
	}
	if change != nil {
		change(&c)
	}
	var err error
	if h.Fleet, err = fleet.New(c); err == nil {
		h.listener, err = h.Listen(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	h.Address = h.listener.Addr().String()
	return h
}

// Start serves until stop, or the end of the test.
func (h *Hub) Start(t testing.TB) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, h.listener) }()
	stop = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// BreakListener makes accepting fail.
func (h *Hub) BreakListener() { _ = h.listener.Close() }

// Connect runs a node's end and waits until it is connected.
func (h *Hub) Connect(t testing.TB, n *linktest.Node) (stop func()) {
	t.Helper()
	end, err := link.NewNode(n.Config(h.Address, h.Authority.PEM))
	if err != nil {
		t.Fatal(err)
	}
	stop = linktest.Run(t, end)
	waittest.Until(t, n.Name+" is connected and has shown its pools", func() bool {
		p := h.Get(n.Name)
		if p == nil {
			return false
		}
		pools, _ := p.Pools()
		return pools != nil
	})
	return stop
}

// claims are those of a token.
type claims struct {
	Node    string `json:"node"`
	Expires int64  `json:"exp"`
}

// Claimed gives the node that a token is for if Review takes it.
func Claimed(token string) (string, error) {
	var c claims
	err := fleet.DecodeToken(token, &c)
	return c.Node, err
}

// Review gives a token's node, without a look at its end.
func Review(_ context.Context, token string) (string, error) {
	if !strings.HasSuffix(token, ".signature") {
		return "", errors.New("the token is refused")
	}
	return Claimed(token)
}
