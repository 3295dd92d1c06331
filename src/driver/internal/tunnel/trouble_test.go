package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
)

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
	tunneltest.Logged(t, &node.Log, "no such host 127.0.0.1")
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
	tunneltest.Logged(t, &node.Log, "no connection to the controller")
	tunneltest.Until(t, "it has been away for long", func() bool { return asked.Load() > 200 })
	for _, what := range []string{"cannot find the controller's Service", "no connection to the controller"} {
		if n := strings.Count(node.Log.String(), what); n != 1 {
			t.Errorf("%q was logged %d times", what, n)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
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
