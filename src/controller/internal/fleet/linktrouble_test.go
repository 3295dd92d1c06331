package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestTheServiceHasManyAddresses: a node connects to each replica of the controller, also to one that comes later.
func TestTheServiceHasManyAddresses(t *testing.T) {
	t.Parallel()
	one := fleettest.NewHub(t, local, nil)
	_, port, err := net.SplitHostPort(one.Address)
	if err != nil {
		t.Fatal(err)
	}
	two := fleettest.NewHub(t, "127.0.0.2:"+port, nil)
	one.Start(t)
	stop := two.Start(t)
	node := &linktest.Node{Name: "a"}
	config := node.Config(one.Address, append(one.Authority.PEM, two.Authority.PEM...))
	var asked atomic.Int64
	config.LookUp = func(_ context.Context, host string) ([]string, error) {
		switch asked.Add(1) {
		case 1:
			return nil, errors.New("no such host " + host)
		case 2, 3:
			return []string{"127.0.0.1", "127.0.0.2"}, nil
		default:
			return []string{"127.0.0.1"}, nil
		}
	}
	config.Resolve, config.ResolveSoon = 20*time.Millisecond, 20*time.Millisecond
	end, err := link.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	linktest.Run(t, end)
	linktest.Logged(t, &node.Log, "no such host 127.0.0.1")
	waittest.Until(t, "both are connected", func() bool { return one.Get("a") != nil && two.Get("a") != nil })
	p := one.Get("a")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the one that is gone is dialled no more", func() bool { return asked.Load() > 20 })
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
	node := &linktest.Node{Name: "a"}
	config := node.Config(closed.Addr().String(), linktest.NewAuthority(t).PEM)
	var asked atomic.Int64
	config.LookUp = func(context.Context, string) ([]string, error) {
		if n := asked.Add(1); n < 20 {
			return nil, fmt.Errorf("lookup from port %d: no such host", n)
		}
		return []string{"127.0.0.1"}, nil
	}
	config.Resolve, config.ResolveSoon = time.Millisecond, time.Millisecond
	config.Pause = wait.Backoff{Duration: time.Millisecond}
	end, err := link.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	linktest.Run(t, end)
	linktest.Logged(t, &node.Log, "no connection to the controller")
	waittest.Until(t, "it has been away for long", func() bool { return asked.Load() > 200 })
	for _, what := range []string{"cannot find the controller's Service", "no connection to the controller"} {
		if n := strings.Count(node.Log.String(), what); n != 1 {
			t.Errorf("%q was logged %d times", what, n)
		}
	}
}

func TestTheNodesConfigIsChecked(t *testing.T) {
	t.Parallel()
	node := linktest.Node{Name: "a"}
	for name, change := range map[string]func(*link.NodeConfig){
		"no port": func(c *link.NodeConfig) { c.Address = "controller" },
		"no name": func(c *link.NodeConfig) { c.Node = "" },
		"nothing": func(c *link.NodeConfig) { *c = link.NodeConfig{} },
	} {
		c := node.Config(local, nil)
		change(&c)
		if _, err := link.NewNode(c); err == nil {
			t.Errorf("%s: NewNode takes it", name)
		}
	}
}
