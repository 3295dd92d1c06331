package fleet_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

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
			trust: func([]byte) ([]byte, error) { return linktest.NewAuthority(t).PEM, nil },
			want: "certificate is refused: tls: failed to verify certificate: x509: certificate signed by unknown " +
				"authority",
		},
		"empty CA": {
			trust: func([]byte) ([]byte, error) { return nil, nil },
			want:  "are not there yet: the controller writes them",
		},
		"CA that cannot be read": {
			trust: func([]byte) ([]byte, error) { return nil, io.ErrUnexpectedEOF },
			want:  "(--controller-ca): unexpected EOF",
		},
		"clock off by a day": {from: now.Add(24 * time.Hour), want: "is not yet valid"},
		"certificate ended":  {from: now.Add(-24 * time.Hour), want: "certificate has expired"},
		"another name":       {host: "127.0.0.9", want: "is valid for 127.0.0.9, not 127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var right atomic.Bool
			var good, bad *tls.Certificate
			hub := fleettest.NewHub(t, local, func(c *fleet.Config) {
				c.TLS.Certificates = nil
				c.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
					if right.Load() {
						return good, nil
					}
					return bad, nil
				}
			})
			good = hub.Authority.Issue(t, linktest.Host, now)
			if bad = good; c.trust == nil {
				if c.host == "" {
					c.host = linktest.Host
				}
				if c.from.IsZero() {
					c.from = now
				}
				bad = hub.Authority.Issue(t, c.host, c.from)
			}
			hub.Start(t)
			node := &linktest.Node{Name: "a"}
			config := node.Config(hub.Address, hub.Authority.PEM)
			config.Authorities = func(context.Context) ([]byte, error) {
				if right.Load() || c.trust == nil {
					return hub.Authority.PEM, nil
				}
				return c.trust(hub.Authority.PEM)
			}
			end, err := link.NewNode(config)
			if err != nil {
				t.Fatal(err)
			}
			linktest.Run(t, end)
			linktest.Logged(t, &node.Log, c.want)
			right.Store(true)
			waittest.Until(t, "it is connected", func() bool { return hub.Get("a") != nil })
		})
	}
}

// TestANodeRenewsItsToken: the connection outlives the token that it began with.
func TestANodeRenewsItsToken(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	hub.Start(t)
	node := &linktest.Node{Name: "a"}
	var reads atomic.Int64
	config := node.Config(hub.Address, hub.Authority.PEM)
	config.Token = func() (string, error) { // each lasts two seconds at most
		if reads.Add(1) == 2 {
			return "", errors.New("the file is being replaced")
		}
		return linktest.Token("a", time.Now().Add(2*time.Second).Unix()), nil
	}
	config.Renew = 20 * time.Millisecond
	end, err := link.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	linktest.Run(t, end)
	waittest.Until(t, "the connection has outlived its first token", func() bool {
		p := hub.Get("a")
		return p != nil && time.Since(p.Since) > 3*time.Second
	})
}

// TestARenewedTokenIsSentOnce: when it is another.
func TestARenewedTokenIsSentOnce(t *testing.T) {
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
			if reviewed = append(reviewed, token); len(reviewed) == 2 {
				close(passed)
			}
			return fleettest.Review(ctx, token)
		}
	})
	hub.Start(t)
	node := &linktest.Node{Name: "a"}
	config := node.Config(hub.Address, hub.Authority.PEM)
	var reads atomic.Int64
	config.Token = func() (string, error) {
		if reads.Add(1) < 10 {
			return first, nil
		}
		return second, nil
	}
	config.Renew = 5 * time.Millisecond
	end, err := link.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	linktest.Run(t, end)
	<-passed
	seen := reads.Load() + 10
	waittest.Until(t, "it is read again and again", func() bool { return reads.Load() > seen })
	mu.Lock()
	defer mu.Unlock()
	if want := []string{first, second}; !slices.Equal(reviewed, want) {
		t.Errorf("%d tokens were reviewed, want each once", len(reviewed))
	}
}

// TestANodeWithTooMuchToSay: it says what fits.
func TestANodeWithTooMuchToSay(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	hub.Start(t)
	node := &linktest.Node{Name: "a"}
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
	hub := fleettest.NewHub(t, local, nil)
	hub.Start(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	node := &linktest.Node{Name: "a", Search: func(context.Context, string) (bool, error) {
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
	waittest.Until(t, "it takes no calls", func() bool { return hub.Get("a") == nil })
	if _, _, err := p.Find(t.Context(), "pvc-2"); status.Code(err) != codes.Unavailable {
		t.Errorf("a new call: %v", err)
	}
	close(finish)
	if err := <-running; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	<-stopped
}

// TestTheHubStops: a node finds the next one at the same address by itself.
func TestTheHubStops(t *testing.T) {
	t.Parallel()
	hub := fleettest.NewHub(t, local, nil)
	stop := hub.Start(t)
	begun := make(chan struct{}, 1)
	node := &linktest.Node{Name: "a", Search: func(ctx context.Context, _ string) (bool, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return false, ctx.Err()
	}}
	config := node.Config(hub.Address, nil)
	var trusted atomic.Pointer[[]byte]
	trusted.Store(&hub.Authority.PEM)
	config.Authorities = func(context.Context) ([]byte, error) { return *trusted.Load(), nil }
	end, err := link.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	linktest.Run(t, end)
	waittest.Until(t, "it is connected", func() bool { return hub.Get("a") != nil })
	running := make(chan error, 1)
	go func() { _, _, err := hub.Get("a").Find(t.Context(), "pvc-1"); running <- err }()
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-running; err == nil {
		t.Error("the call under way has an answer")
	}
	next := fleettest.NewHub(t, hub.Address, nil)
	trusted.Store(&next.Authority.PEM)
	next.Start(t)
	waittest.Until(t, "it is connected again", func() bool { return next.Get("a") != nil })
}
