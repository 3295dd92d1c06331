package inventory_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/inventory"
)

// TestStates: what the controller says of a volume has one of the states that volumes are chosen by.
func TestStates(t *testing.T) {
	for said, want := range map[string]string{
		"":                                   facts.OK,
		"orphan":                             facts.Orphan,
		"orphan, of node b":                  facts.Orphan,
		"orphan, snapshot of v":              facts.Orphan,
		"not found":                          facts.Lost,
		"node not connected":                 facts.NodeNotConnected,
		"pool absent":                        facts.PoolAbsent,
		"snapshot of v":                      facts.Snapshot,
		nodeapi.NotWhole:                     facts.Copying,
		"1Gi is copied":                      facts.Copying,
		"rpc error: the node did not answer": facts.Unknown,
	} {
		all := inventory.Volumes(facts.Facts{
			Listed: []nodeapi.VolumeStatus{{ID: "v", Node: "a", Pool: "local", State: said}},
		})
		if len(all) != 1 || all[0].State != want || !slices.Contains(facts.States(), want) {
			t.Errorf("%q is %v, want %s", said, all, want)
		}
	}
}

// TestMarks: a warning of a pool is the state of the volumes that it names, on that node and in that pool.
func TestMarks(t *testing.T) {
	for reason, want := range map[string]string{
		nodeapi.WarningVolumeLost: facts.Lost, nodeapi.WarningVolumeRefused: facts.Refused,
		nodeapi.WarningVolumeNotEnforced: facts.NotEnforced, nodeapi.WarningQuotaChanged: facts.OK,
	} {
		pool := nodeapi.PoolStatus{Name: "local", Warnings: []nodeapi.Warning{{Reason: reason, Volumes: []string{"v"}}}}
		all := inventory.Volumes(facts.Facts{
			Reported: nodeapi.Status{Nodes: []nodeapi.NodeStatus{{Name: "a", Pools: []nodeapi.PoolStatus{pool}}}},
			Listed: []nodeapi.VolumeStatus{
				{
					ID:   "v",
					Node: "a",
					Pool: "local",
				},
				{ID: "v", Node: "b", Pool: "local"},
				{ID: "w", Node: "a", Pool: "local"},
			},
		})
		if all[0].State != want || all[1].State != facts.OK || all[2].State != facts.OK {
			t.Errorf("%s: %v", reason, all)
		}
	}
}

func TestSort(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	all := []inventory.Volume{
		{
			ID:      "1",
			Claim:   "b",
			Node:    "x",
			Pool:    "q",
			Size:    new(int64(1)),
			Used:    new(int64(9)),
			Percent: new(int64(5)),
			Created: at,
		},
		{
			ID:      "2",
			Claim:   "a",
			Node:    "y",
			Pool:    "p",
			Size:    new(int64(2)),
			Used:    new(int64(8)),
			Created: at.Add(time.Hour),
		},
		{ID: "3", Node: "", Size: new(int64(3)), Percent: new(int64(7))},
	}
	for by, want := range map[string]string{
		"claim": "2 1 3", "-claim": "1 2 3", "size": "3 2 1", "-size": "1 2 3", "used": "1 2 3", "-used": "2 1 3",
		"use": "3 1 2", "-use": "1 3 2", "age": "1 2 3", "-age": "2 1 3", "node": "1 2 3", "-node": "2 1 3",
		"pool": "2 1 3", "-pool": "1 2 3",
	} {
		rows := slices.Clone(all)
		err := inventory.Sort(rows, by, inventory.VolumeOrders())
		var ids []string
		for _, v := range rows {
			ids = append(ids, v.ID)
		}
		if got := strings.Join(ids, " "); err != nil || got != want {
			t.Errorf("%s: %v: %s, want %s", by, err, got, want)
		}
	}
	err := inventory.Sort(all, "--use", inventory.VolumeOrders())
	if err == nil || !strings.Contains(err.Error(), "want claim, size, used") {
		t.Errorf("got %v", err)
	}
}

func TestFilter(t *testing.T) {
	v := inventory.Volume{Namespace: "shop", Node: "a,b", Pool: "local", Class: "fast", State: facts.Orphan}
	for _, c := range []struct {
		filter inventory.Filter
		want   bool
	}{
		{inventory.Filter{}, true},
		{inventory.Filter{Namespace: "shop", Node: "b", Pool: "local", Class: "fast"}, true},
		{inventory.Filter{States: []string{facts.OK, facts.Orphan}}, true},
		{inventory.Filter{Namespace: "blog"}, false},
		{inventory.Filter{Node: "c"}, false},
		{inventory.Filter{Pool: "other"}, false},
		{inventory.Filter{Class: "slow"}, false},
		{inventory.Filter{States: []string{facts.OK}}, false},
	} {
		if got := c.filter.Volume(v); got != c.want {
			t.Errorf("%+v: %v", c.filter, got)
		}
	}
	err := inventory.Filter{States: []string{"ok", "fine"}}.Check(facts.States())
	if err == nil || !strings.HasPrefix(err.Error(), `--state: "fine": want ok, orphan, lost`) {
		t.Errorf("got %v", err)
	}
}

// TestPools: a pool is chosen by each of its states.
func TestPools(t *testing.T) {
	is := func(state, reason string, readOnly bool) nodeapi.PoolStatus {
		return nodeapi.PoolStatus{Name: state + reason, State: state, Reason: reason, ReadOnly: readOnly}
	}
	f := facts.Facts{Reported: nodeapi.Status{Nodes: []nodeapi.NodeStatus{{Name: "a", Pools: []nodeapi.PoolStatus{
		is(nodeapi.StatePresent, "", false), is(nodeapi.StatePresent, nodeapi.ReasonReadOnly, true),
		is(nodeapi.StatePresent, nodeapi.ReasonNoNewVolumes, false), is(nodeapi.StateAbsent, "NotMounted", false),
		is(nodeapi.StateNotSelected, nodeapi.ReasonNotSelected, false),
		is(nodeapi.StateNotConfigured, nodeapi.ReasonNotConfigured, false), is("", "silent", false),
	}}}}}
	for state, want := range map[string]string{
		"present": "present presentReadOnly presentNoNewVolumes", "read-only": "presentReadOnly",
		"degraded": "presentNoNewVolumes", "absent": "absentNotMounted", "not-selected": "not selectedNotSelected",
		"not-configured": "not configuredNotConfigured", "unknown": "silent",
	} {
		var found []string
		for _, p := range inventory.Pools(f) {
			if (inventory.Filter{States: []string{state}}).OfPool(p) {
				found = append(found, p.Name)
			}
		}
		if got := strings.Join(found, " "); got != want || !slices.Contains(inventory.PoolStates(), state) {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// TestPoolOrders: the usual order is by node, and there that of the controller.
func TestPoolOrders(t *testing.T) {
	all := []inventory.Pool{
		{Node: "b", Name: "2", Free: new(int64(3))},
		{Node: "b", Name: "1"},
		{Node: "a", Name: "3", Free: new(int64(4))},
	}
	for by, want := range map[string]string{
		"node": "3 2 1", "-node": "2 1 3", "pool": "1 2 3", "free": "3 2 1", "-free": "2 3 1", "largest": "3 2 1",
	} {
		rows := slices.Clone(all)
		err := inventory.Sort(rows, by, inventory.PoolOrders())
		var names []string
		for _, p := range rows {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: %v: %s, want %s", by, err, got, want)
		}
	}
}
