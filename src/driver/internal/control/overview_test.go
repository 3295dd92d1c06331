package control_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// cluster stands in for what the controller knows.
type cluster struct {
	nodes   []nodeapi.NodeStatus
	volumes []nodeapi.VolumeStatus
	err     error
}

func (c *cluster) Nodes() []nodeapi.NodeStatus { return c.nodes }

func (c *cluster) Volumes(context.Context) ([]nodeapi.VolumeStatus, error) {
	return slices.Clone(c.volumes), c.err
}

// shows compares a table with lines, whose columns are one or more spaces apart.
func shows(t *testing.T, write func(*bytes.Buffer) error, want ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); len(fields) > 0 {
			got = append(got, strings.Join(fields, " "))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNodes(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	c := &cluster{nodes: []nodeapi.NodeStatus{
		{
			Name: "worker-1", State: "connected", Version: "0.2.0", Since: now.Add(-time.Hour),
			Seen: now.Add(-time.Second),
			Pools: []nodeapi.PoolStatus{
				{
					Name: "local", State: nodeapi.StatePresent, Backend: "btrfs", Enforcement: "strict",
					Size: 100 << 30,
					Free: 60 << 30, Allocatable: 50 << 30, Promised: 1536, Volumes: 3,
				},
				{Name: "slow", State: nodeapi.StateAbsent, Message: "MarkerMissing: mount it"},
			},
		},
		{Name: "worker-2", State: "not connected", Message: "its driver does not reach the controller"},
	}}
	client, _ := run(t, control.Config{Owner: me(), Overview: c})
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := control.Status{Driver: "hpp", Version: "0.1.0", Pools: []nodeapi.PoolStatus{}, Nodes: c.nodes}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	shows(t, func(out *bytes.Buffer) error { return control.WriteTable(out, got, now) },
		"hpp 0.1.0, controller",
		"NODE STATE VERSION SEEN POOL PRESENCE BACKEND ENFORCEMENT SIZE FREE ALLOCATABLE PROMISED VOLUMES",
		"worker-1 connected 0.2.0 1s ago local present btrfs strict 100Gi 60Gi 50Gi 1.5Ki 3",
		"worker-1 connected 0.2.0 1s ago slow absent - - - - - - -",
		"worker-2 not connected - never - - - - - - - - -",
		"worker-1: slow: MarkerMissing: mount it",
		"worker-2: its driver does not reach the controller")
}

// TestTheControllerHasNoPools: what concerns a node's pools is done on that node.
func TestTheControllerHasNoPools(t *testing.T) {
	client, _ := run(t, control.Config{Owner: me(), Overview: &cluster{}})
	_, forget := client.Forget(t.Context(), "local")
	_, adopt := client.Adopt(t.Context(), "pvc-1", control.Adoption{})
	_, enforce := enforced(t, client, control.Selection{Pool: "local"})
	for _, err := range []error{forget, adopt, enforce, client.Discard(t.Context(), "pvc-1", "")} {
		says(t, err, "refused", "in the driver's pod on the node")
	}
}

func TestVolumesOfAllNodes(t *testing.T) {
	c := &cluster{volumes: []nodeapi.VolumeStatus{
		{ID: "pvc-2", Node: "worker-2", Pool: "local", Bytes: 1 << 30, Used: -1, State: "orphan"},
		{
			ID: "pvc-3", Node: "worker-1", Pool: "local", Claim: "shop/data", PV: "pvc-3", Bytes: 10 << 30,
			Used:        512 << 20,
			Enforcement: "strict",
		},
		{ID: "pvc-1", Node: "worker-1", Pool: "local", Bytes: 1 << 30, State: "node not connected"},
	}}
	client, _ := run(t, control.Config{Owner: me(), Overview: c})
	got, err := client.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]nodeapi.VolumeStatus{c.volumes[2], c.volumes[1], c.volumes[0]}, got); diff != "" {
		t.Error(diff)
	}
	shows(t, func(out *bytes.Buffer) error { return control.WriteVolumes(out, got) },
		"ID NODE POOL CLAIM SIZE USED ENFORCEMENT STATE",
		"pvc-1 worker-1 local - 1Gi 0 - node not connected",
		"pvc-3 worker-1 local shop/data 10Gi 512Mi strict -",
		"pvc-2 worker-2 local - 1Gi - - orphan")
	c.err = errors.New("no node answers")
	_, err = client.Volumes(t.Context())
	says(t, err, "refused", "no node answers")
}

func TestVolumesOfANode(t *testing.T) {
	d := &domain{all: []nodeapi.VolumeStatus{
		{ID: "pvc-1", Pool: "local", Bytes: 1 << 30, Claim: "shop/data", Enforcement: "strict", Used: 5},
		{ID: "csi-2", Pool: "local", Ephemeral: true, Enforcement: "none", Used: -1},
	}}
	client, _ := serve(t, d, me())
	got, err := client.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]nodeapi.VolumeStatus{
		{ID: "csi-2", Node: "worker-1", Pool: "local", Used: -1, Enforcement: "none", State: "inline"},
		{
			ID: "pvc-1", Node: "worker-1", Pool: "local", Claim: "shop/data", Bytes: 1 << 30, Used: 5,
			Enforcement: "strict",
		},
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestConfig(t *testing.T) {
	d, log := &domain{}, slog.New(slog.DiscardHandler)
	node := control.Config{
		StateDir: "/state", Driver: "hpp", Build: "0.1.0", Log: log, Node: "worker-1", TopologyKey: "a/b", Pools: d,
		Volumes: volumes{d},
	}
	controller := control.Config{StateDir: "/state", Driver: "hpp", Build: "0.1.0", Log: log, Overview: &cluster{}}
	nameless := node
	nameless.Node = ""
	for name, test := range map[string]struct {
		config control.Config
		good   bool
	}{
		"node": {node, true}, "controller": {controller, true}, "a node without a name": {nameless, false},
		"nothing": {control.Config{}, false},
	} {
		if _, err := control.New(test.config); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
