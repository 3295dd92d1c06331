package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestRouting: a call goes to the node of the PersistentVolume, else to the one that has the volume.
func TestRouting(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", gib), newNode("b", gib)
	r := start(t, a, b)
	for name, c := range map[string]struct {
		pv     *nodeapi.PersistentVolume
		on     []*node
		away   bool // a third node is not connected
		absent bool // a pool of node b
		silent bool
		want   codes.Code
		text   string
		asked  *node
		gone   codes.Code // of a call other than DeleteVolume, where that is OK
	}{
		"by PV":              {pv: new(named("v", "b")), on: []*node{b}, asked: b},
		"PV before having":   {pv: new(named("v", "b")), on: []*node{a, b}, away: true, asked: b},
		"PV, and not there":  {pv: new(named("v", "a")), on: []*node{b}, asked: a},
		"PV of all nodes":    {pv: new(named("v")), on: []*node{b}, asked: b},
		"one has it":         {on: []*node{a}, asked: a},
		"one has it, others": {on: []*node{a}, away: true, absent: true, asked: a},
		"none has it":        {gone: codes.NotFound},
		"two have it":        {on: []*node{a, b}, want: codes.FailedPrecondition, text: "nodes a, b all have volume v"},
		"a node is away":     {away: true, want: codes.Unavailable, text: "could not be asked: c (node c is not connected"},
		"a pool is absent":   {absent: true, want: codes.Unavailable, text: "b (pool local is absent)"},
		"API is silent":      {silent: true, on: []*node{a}, want: codes.Unavailable, text: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			r.set(func() {
				r.pvs, r.drivers, r.silent = nil, []string{"a", "b"}, c.silent
				if c.pv != nil {
					r.pvs = []nodeapi.PersistentVolume{*c.pv}
				}
				if c.away {
					r.drivers = append(r.drivers, "c")
				}
			})
			if b.absent.Delete("pool"); c.absent {
				b.absent.Store("pool", true)
			}
			a.Remove()
			b.Remove()
			for _, n := range c.on {
				n.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
			}
			calls := ""
			if c.asked != nil {
				calls = "expand v, validate v, delete v"
			}
			want := max(c.want, c.gone)
			_, err := r.ValidateVolumeCapabilities(t.Context(), &pb.ValidateVolumeCapabilitiesRequest{VolumeId: "x/"})
			wantCode(t, err, codes.InvalidArgument, "volume_id")
			wantCode(t, r.expand(t, "v"), want, c.text)
			_, err = r.ValidateVolumeCapabilities(t.Context(), &pb.ValidateVolumeCapabilitiesRequest{VolumeId: "v"})
			wantCode(t, err, want, c.text)
			wantCode(t, r.remove(t, "v"), c.want, c.text)
			for _, n := range []*node{a, b} {
				if got := n.asked(); n == c.asked && got != calls || n != c.asked && got != "" {
					t.Errorf("node %s was asked for: %s", n.Name, got)
				}
			}
		})
	}
}

// TestTwoPersistentVolumesOfOneVolume: deleting one would take the other's data, also where they name the same node.
// Everything else goes on.
func TestTwoPersistentVolumesOfOneVolume(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", gib), newNode("b", gib)
	r := start(t, a, b)
	for _, nodes := range [][]string{{"b"}, nil} {
		second := named("v", nodes...)
		second.Name = "retained"
		b.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
		r.set(func() { r.pvs = []nodeapi.PersistentVolume{named("v", nodes...), second} })
		wantCode(
			t,
			r.remove(t, "v"),
			codes.FailedPrecondition,
			"PersistentVolumes pv-v, retained all have the volumeHandle v",
		)
		wantCode(t, r.expand(t, "v"), codes.OK, "")
		if asked := a.asked() + b.asked(); asked != "expand v" || !b.Has("v") {
			t.Errorf("the nodes were asked for: %s", asked)
		}
		r.set(func() { r.syncing = true })
		wantCode(t, r.remove(t, "v"), codes.Unavailable, "waiting for the Kubernetes API")
		r.set(func() { r.syncing, r.pvs = false, []nodeapi.PersistentVolume{second} })
		wantCode(t, r.remove(t, "v"), codes.OK, "")
		if asked := a.asked() + b.asked(); asked != "delete v" {
			t.Errorf("the nodes were asked for: %s", asked)
		}
	}
}

// TestADeletionIsRemembered: who deletes twice is answered without a question to nodes or API, but only about the
// volume that was deleted.
func TestADeletionIsRemembered(t *testing.T) {
	t.Parallel()
	a := newNode("a", gib)
	r := start(t, a)
	of := func(uid string) nodeapi.PersistentVolume {
		pv := named("pvc-1", "a")
		pv.UID = uid
		return pv
	}
	for name, c := range map[string]struct {
		between func()
		asked   string
	}{
		"at once":               {between: func() {}},
		"PV gone":               {between: func() { r.set(func() { r.pvs = nil }) }},
		"PV gone, node as well": {between: func() { r.set(func() { r.pvs, r.drivers = nil, []string{"a", "b"} }) }},
		"API silent":            {between: func() { r.set(func() { r.silent = true }) }},
		"another PV": {
			between: func() { r.set(func() { r.pvs = []nodeapi.PersistentVolume{of("2")} }) }, asked: "delete pvc-1",
		},
		"later": {between: func() { r.pass(10 * time.Minute) }, asked: "delete pvc-1"},
		"made again": {
			between: func() {
				if _, err := r.create(t, "1", gib, "a"); err != nil {
					t.Error(err)
				}
			},
			asked: "create pvc-1, delete pvc-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.set(func() { r.pvs, r.silent, r.drivers = []nodeapi.PersistentVolume{of("1")}, false, []string{"a"} })
			r.pass(time.Hour)
			a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"})
			wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
			if asked := a.asked(); asked != "delete pvc-1" {
				t.Errorf("the first time the node was asked for: %s", asked)
			}
			c.between()
			wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
			if asked := a.asked(); asked != c.asked {
				t.Errorf("then the node was asked for %q, want %q", asked, c.asked)
			}
		})
	}
	r.set(func() { r.pvs, r.silent, r.drivers = []nodeapi.PersistentVolume{of("3")}, false, []string{"a"} })
	a.answers(func(context.Context, string) error { return status.Error(codes.FailedPrecondition, "mounted") })
	for range 2 {
		wantCode(t, r.remove(t, "pvc-1"), codes.FailedPrecondition, "mounted") // nothing is remembered of that
	}
	begun := make(chan struct{})
	finish := make(chan struct{})
	a.answers(func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "delete") {
			begun <- struct{}{}
			<-finish
		}
		return nil
	})
	slow := make(chan error, 1)
	go func() { slow <- r.remove(t, "pvc-1") }()
	select {
	case <-begun:
	case err := <-slow:
		t.Fatalf("the deletion ended before it reached the node: %v", err)
	}
	if _, err := r.create(t, "1", gib, "a"); err != nil {
		t.Error(err)
	}
	close(finish)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	a.answers(nil)
	a.asked()
	wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
	if asked := a.asked(); asked != "delete pvc-1" {
		t.Errorf("a volume that was made while another was deleted was not deleted: %q", asked)
	}
}

// TestSizeNotEnforced: one event for each class and pool, not for each claim.
func TestSizeNotEnforced(t *testing.T) {
	t.Parallel()
	a := newNode("a", gib)
	a.lie = func(v *pb.Volume) {
		v.VolumeContext = map[string]string{names.StoragePoolParameter: "local", "enforcement": "none", "uid": "1"}
	}
	r := start(t, a)
	create := func(name, uid string) {
		t.Helper()
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: name, Parameters: map[string]string{nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: name, "uid": uid},
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{topology("a")}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pvc-1", "pvc-2", "pvc-1"} {
		create(name, "1")
	}
	create("pvc-3", "2")
	events := r.told("")
	const first = "Normal default/pvc-1 SizeNotEnforced: pool local has no quota on node a"
	if len(events) != 2 || !strings.HasPrefix(events[0], first) ||
		!strings.HasPrefix(events[1], "Normal default/pvc-3 ") {
		t.Errorf("told was %q", events)
	}
}

// TestCodes: what a node answers is the answer, and an answer that is lost is asked for again.
func TestCodes(t *testing.T) {
	t.Parallel()
	a := newNode("a", gib)
	r := start(t, a)
	r.pvs = []nodeapi.PersistentVolume{named("v", "a")}
	for _, code := range []codes.Code{
		codes.ResourceExhausted, codes.Unavailable, codes.Aborted, codes.AlreadyExists, codes.OutOfRange, codes.Internal,
		codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.DataLoss,
	} {
		a.answers(func(context.Context, string) error { return status.Error(code, "because") })
		_, err := r.create(t, "1", gib, "a")
		for _, err := range []error{err, r.expand(t, "v"), r.remove(t, "v")} {
			wantCode(t, err, code, "because")
		}
	}
	calls := map[string]func() error{
		"create": func() error { _, err := r.create(t, "1", gib, "a"); return err },
		"expand": func() error { return r.expand(t, "v") },
		"delete": func() error { return r.remove(t, "v") },
	}
	for name, call := range calls {
		tunneltest.Until(t, "the node is connected", func() bool { return r.hub.Get("a") != nil })
		a.answers(func(ctx context.Context, _ string) error {
			r.hub.Get("a").Close(errors.New("cut"))
			<-ctx.Done()
			return nil
		})
		if err := call(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantCode(t, r.remove(t, "../v"), codes.InvalidArgument, "volume_id")
	wantCode(t, r.expand(t, ""), codes.InvalidArgument, "missing")
	_, err := r.create(t, strings.Repeat("x", 200), gib)
	wantCode(t, err, codes.InvalidArgument, "invalid volume id")
}

// TestALyingNode: what it answers opens nothing of another node, and leads to no deletion there.
func TestALyingNode(t *testing.T) {
	t.Parallel()
	a := newNode("a", gib)
	r := start(t, a)
	for name, lie := range map[string]func(*pb.Volume){
		"another volume": func(v *pb.Volume) { v.VolumeId = "pvc-victim" },
		"too small":      func(v *pb.Volume) { v.CapacityBytes = 1 },
		"nothing":        func(v *pb.Volume) { v.Reset() },
	} {
		a.lie = lie
		if _, err := r.create(t, "1", gib, "a"); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.lie = func(v *pb.Volume) {
		v.AccessibleTopology = []*pb.Topology{topology("victim")}
		v.ContentSource = &pb.VolumeContentSource{}
		v.VolumeContext = map[string]string{
			names.StoragePoolParameter: "victim", "enforcement": "strict", "uid": "0", "onDelete": "retain",
			"storage.kubernetes.io/x": "y",
		}
	}
	if node, err := r.create(t, "1", gib, "a"); node != "a" || err != nil {
		t.Errorf("it is on node %q, %v", node, err)
	}
	answer, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: "pvc-2",
		Parameters: map[string]string{
			names.StoragePoolParameter: "local", "onDelete": "delete", nodeapi.KeyClaimName: "claim",
		},
		AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{topology("a")}},
	})
	want := map[string]string{names.StoragePoolParameter: "local", "enforcement": "strict", "onDelete": "delete"}
	if got := answer.GetVolume().GetVolumeContext(); err != nil || !maps.Equal(got, want) {
		t.Errorf("attributes are %v, want %v; %v", got, want, err)
	}
}

// TestPlacement: where new volumes go.
func TestPlacement(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 10*gib), newNode("b", 20*gib)
	r := start(t, a, b)
	r.drivers = append(r.drivers, "c")
	const none = "no claim"
	for name, c := range map[string]struct {
		selected string // before
		other    string
		bytes    int64
		allowed  []string
		silent   bool
		on       *node
		want     string
		code     codes.Code
		text     string
	}{
		"the node of the pod":      {selected: none, allowed: []string{"a"}, want: "a"},
		"the roomiest":             {want: "b"},
		"of those allowed":         {allowed: []string{"a", "c", "a"}, want: "a"},
		"of an earlier request":    {selected: "a", bytes: 100 * gib, want: "a"},
		"of another controller":    {other: "a", want: "a"},
		"claim gone, volume there": {selected: none, on: a, want: "a"},
		"claim gone":               {selected: none, code: codes.InvalidArgument, text: "claim default/claim is gone"},
		"too large":                {bytes: 21 * gib, code: codes.ResourceExhausted, text: "no connected node has 21Gi in pool local; the most is 20Gi; pool local is present on 2 of 3 nodes; c: it is not connected"},
		"API is silent":            {silent: true, code: codes.Unavailable, text: "connection refused"},
		"selected, not allowed": {
			selected: "b", allowed: []string{"a", "c"}, code: codes.InvalidArgument, text: `names node "b", which is none of`,
		},
		"selected by another, not allowed": {
			other: "b", allowed: []string{"a", "c"}, code: codes.InvalidArgument, text: `names node "b", which is none of`,
		},
		"selected and allowed": {selected: "b", allowed: []string{"a", "b"}, want: "b"},
		"allowed are away":     {allowed: []string{"c", "d"}, code: codes.ResourceExhausted, text: "no connected node"},
	} {
		t.Run(name, func(t *testing.T) {
			uid := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			r.set(func() {
				if r.other, r.silent = c.other, c.silent; c.selected != none {
					r.claims[uid] = c.selected
				}
				r.drivers = []string{"a", "b", "c"}
				if c.on != nil {
					r.drivers = []string{"a", "b"}
					c.on.Put(nodeapi.VolumeStatus{ID: "pvc-" + uid})
				}
				if c.selected == none {
					r.drivers = []string{"a", "b"}
				}
			})
			for _, n := range []*node{a, b} {
				n.asked()
				n.answers(func(context.Context, string) error { // the claim has the node before
					r.set(func() {
						if c.selected != none && r.claims[uid] != n.Name {
							t.Errorf("node %s is asked while the claim has %q", n.Name, r.claims[uid])
						}
					})
					return nil
				})
			}
			node, err := r.create(t, uid, c.bytes, c.allowed...)
			if wantCode(t, err, c.code, c.text); node != c.want {
				t.Errorf("it is on %q, want %q", node, c.want)
			}
			if calls := a.asked() + b.asked(); (c.want == "") != (calls == "") {
				t.Errorf("nodes were asked for %q", calls)
			}
			r.set(func() {
				if c.code == codes.ResourceExhausted && r.claims[uid] != "" {
					t.Errorf("the claim has node %s", r.claims[uid])
				}
			})
		})
	}
}

func TestBadPlacement(t *testing.T) {
	t.Parallel()
	r := start(t, newNode("a", gib))
	r.claims["1"] = ""
	for text, q := range map[string]*pb.CreateVolumeRequest{
		"allowedTopologies may name no other": {
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{
				{Segments: map[string]string{tunneltest.TopologyKey: "a", "zone": "1"}},
			}},
		},
		"want the key " + tunneltest.TopologyKey: {
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{
				{Segments: map[string]string{"zone": "1"}},
			}},
		},
		`parameters.storagePool: "fast" is in no configuration; want one of local`: {
			Parameters: map[string]string{
				names.StoragePoolParameter: "fast", nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: "claim",
			},
		},
	} {
		q.Name = "pvc-1"
		_, err := r.CreateVolume(t.Context(), q)
		wantCode(t, err, codes.InvalidArgument, text)
	}
	for _, bad := range []string{"", "a/b"} {
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: bad})
		if wantCode(t, err, codes.InvalidArgument, ": name: "); strings.Contains(err.Error(), "volume_id") {
			t.Errorf("the name is called another: %v", err)
		}
	}
}

// TestOneClaimHasOneNode: also when the controller crashes between answer and PersistentVolume, when two controllers
// work at once, and when nobody in Kubernetes asks.
func TestOneClaimHasOneNode(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 10*gib), newNode("b", 20*gib)
	r := start(t, a, b)
	r.claims["1"] = ""
	show := func(n *node, largest int64) {
		n.Show(nodeapi.PoolStatus{Name: "local", Allocatable: largest})
		tunneltest.Until(t, n.Name+" has shown its room", func() bool {
			pools, _ := r.hub.Get(n.Name).Pools()
			return pools[0].Allocatable == largest
		})
	}
	unclaimed := &pb.CreateVolumeRequest{Name: "sanity"}
	if _, err := r.CreateVolume(t.Context(), unclaimed); err != nil {
		t.Fatal(err)
	}
	if node, err := r.create(t, "1", gib); node != "b" || err != nil {
		t.Fatalf("on %q: %v", node, err)
	}
	show(a, 30*gib)
	next := r.serve(t, a, b)
	if node, err := next.create(t, "1", gib); node != "b" || err != nil {
		t.Errorf("a new controller chose %q: %v", node, err)
	}
	if answer, err := next.CreateVolume(t.Context(), unclaimed); err != nil ||
		answer.GetVolume().GetAccessibleTopology()[0].GetSegments()[tunneltest.TopologyKey] != "b" {
		t.Errorf("a volume without claim: %v, %v", answer, err)
	}
	for i := range 20 {
		uid := fmt.Sprint("race-", i)
		r.set(func() { r.claims[uid] = "" })
		if i == 10 {
			show(b, 40*gib)
		}
		chosen := make(chan string, 2)
		for _, c := range []running{r, next} {
			go func() {
				node, err := c.create(t, uid, gib)
				chosen <- fmt.Sprint(node, err)
			}()
		}
		if one, two := <-chosen, <-chosen; one != two {
			t.Errorf("two controllers: %s, and %s", one, two)
		}
		if a.Has("pvc-"+uid) == b.Has("pvc-"+uid) {
			t.Error("not on one node")
		}
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 100*gib+12345), newNode("b", gib-1)
	r := start(t, a, b)
	for node, want := range map[string]int64{"a": 100 * gib, "b": gib - 64<<20} {
		if got, err := r.capacity(t, node); got != want || err != nil {
			t.Errorf("%s has %d: %v", node, got, err)
		}
	}
	answer, err := r.GetCapacity(t.Context(), &pb.GetCapacityRequest{})
	if answer.GetMaximumVolumeSize().GetValue() != 100*gib || err != nil {
		t.Errorf("the cluster: %v, %v", answer, err)
	}
	answer, err = r.GetCapacity(t.Context(), &pb.GetCapacityRequest{
		AccessibleTopology: topology("a"), Parameters: map[string]string{names.StoragePoolParameter: "other"},
	})
	if answer.GetAvailableCapacity() != 0 || answer.GetMaximumVolumeSize() == nil || err != nil {
		t.Errorf("another pool: %v, %v", answer, err)
	}
}

// TestReady: sidecars wait at the start for the API, and for nodes as long as their grace.
func TestReady(t *testing.T) {
	t.Parallel()
	r := start(t)
	ready := func(want bool) {
		t.Helper()
		answer, err := r.identity.Probe(t.Context(), &pb.ProbeRequest{})
		if err != nil || answer.GetReady().GetValue() != want || (r.hub.Ready() == nil) != want {
			t.Errorf("ready is %v, %v; want %t", answer, err, want)
		}
	}
	r.set(func() { r.syncing, r.drivers = true, []string{"a", "b"} })
	ready(false)
	r.set(func() { r.syncing = false })
	ready(false)
	a, b := newNode("a", gib), newNode("b", gib)
	r.hub.Connect(t, &a.Node)
	ready(false)
	stop := r.hub.Connect(t, &b.Node)
	ready(true)
	stop()
	tunneltest.Until(t, "b is away", func() bool { return r.hub.Get("b") == nil })
	r.pass(time.Minute)
	ready(true)
	late := r.serve(t, a)
	answer, err := late.identity.Probe(t.Context(), &pb.ProbeRequest{})
	if err != nil || answer.GetReady().GetValue() {
		t.Errorf("a new controller is ready before its nodes: %v", err)
	}
	r.pass(time.Minute)
	if answer, err = late.identity.Probe(t.Context(), &pb.ProbeRequest{}); err != nil || !answer.GetReady().GetValue() {
		t.Errorf("a new controller is not ready after the grace: %v", err)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	answer, err := start(t).ControllerGetCapabilities(t.Context(), &pb.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var can []string
	for _, c := range answer.GetCapabilities() {
		can = append(can, c.GetRpc().GetType().String())
	}
	want := []string{"CREATE_DELETE_VOLUME", "GET_CAPACITY", "EXPAND_VOLUME", "SINGLE_NODE_MULTI_WRITER"}
	if !slices.Equal(can, want) {
		t.Errorf("it can %v", can)
	}
	if _, err := controller.New(controller.Config{}); err == nil {
		t.Error("New takes nothing")
	}
}
