package csi_test

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
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRouting: a call goes to the node of the PersistentVolume, else to the one that has the volume.
func TestRouting(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	r := csitest.Start(t, a, b)
	for name, c := range map[string]struct {
		pv     *nodeapi.PersistentVolume
		on     []*csitest.Node
		away   bool // a third node is not connected
		absent bool // a pool of node b
		silent bool
		moving string // the node that has it, while it is moved to the other
		want   codes.Code
		text   string
		asked  *csitest.Node
		facts  string
		gone   codes.Code // of a call other than DeleteVolume, where that is OK
	}{
		"by PV": {pv: new(csitest.Named("v", "b")), on: []*csitest.Node{b}, asked: b, facts: "true pv-v [b] true"},
		"PV before having": {
			pv: new(csitest.Named("v", "b")), on: []*csitest.Node{a, b}, away: true, asked: b,
			facts: "true pv-v [b] true",
		},
		"PV, and not there": {
			pv: new(csitest.Named("v", "a")), on: []*csitest.Node{b}, asked: a, facts: "true pv-v [a] true",
		},
		"PV of all nodes": {pv: new(csitest.Named("v")), on: []*csitest.Node{b}, asked: b},
		"PV of two nodes": {pv: new(csitest.Named("v", "a", "b")), on: []*csitest.Node{b}, asked: b},
		"one has it":      {on: []*csitest.Node{a}, asked: a, facts: "false  [] false"},
		"one has it, others": {
			on: []*csitest.Node{a}, away: true, absent: true, asked: a, facts: "false  [] false",
		},
		"none has it": {gone: codes.NotFound},
		"it moves":    {on: []*csitest.Node{a, b}, moving: "b", asked: b, facts: "false  [] false"},
		"two have it": {
			on: []*csitest.Node{a, b}, want: codes.FailedPrecondition,
			text: "nodes a, b all have volume v",
		},
		"a node is away": {
			away: true, want: codes.Unavailable,
			text: "could not be asked: c (node c is not connected",
		},
		"a pool is absent": {absent: true, want: codes.Unavailable, text: "b (pool local is absent)"},
		"API is silent": {
			silent: true, on: []*csitest.Node{a}, want: codes.Unavailable,
			text: "connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.Set(func() {
				r.PVs, r.Drivers, r.Silent = nil, []string{"a", "b"}, c.silent
				r.Moves = map[string]string{"v": c.moving}
				if c.pv != nil {
					r.PVs = []nodeapi.PersistentVolume{*c.pv}
				}
				if c.away {
					r.Drivers = append(r.Drivers, "c")
				}
			})
			if b.Absent.Delete("pool"); c.absent {
				b.Absent.Store("pool", true)
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
			csitest.WantCode(t, err, codes.InvalidArgument, "volume_id")
			csitest.WantCode(t, r.Expand(t, "v"), want, c.text)
			if c.asked != nil && c.asked.Facts() != c.facts {
				t.Errorf("expand says of the PersistentVolume %q, want %q", c.asked.Facts(), c.facts)
			}
			_, err = r.ValidateVolumeCapabilities(t.Context(), &pb.ValidateVolumeCapabilitiesRequest{VolumeId: "v"})
			csitest.WantCode(t, err, want, c.text)
			csitest.WantCode(t, r.Remove(t, "v"), c.want, c.text)
			if c.asked != nil && c.asked.Facts() != c.facts {
				t.Errorf("delete says of the PersistentVolume %q, want %q", c.asked.Facts(), c.facts)
			}
			for _, n := range []*csitest.Node{a, b} {
				if got := n.Asked(); n == c.asked && got != calls || n != c.asked && got != "" {
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
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	r := csitest.Start(t, a, b)
	for _, nodes := range [][]string{{"b"}, nil} {
		second := csitest.Named("v", nodes...)
		second.Name = "retained"
		b.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
		r.Set(func() { r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", nodes...), second} })
		csitest.WantCode(t, r.Remove(t, "v"), codes.FailedPrecondition,
			"PersistentVolumes pv-v, retained all have the volumeHandle v")
		csitest.WantCode(t, r.Expand(t, "v"), codes.OK, "")
		if asked := a.Asked() + b.Asked(); asked != "expand v" || !b.Has("v") {
			t.Errorf("the nodes were asked for: %s", asked)
		}
		r.Set(func() { r.Syncing = true })
		csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "waiting for the Kubernetes API")
		r.Set(func() { r.Syncing, r.PVs = false, []nodeapi.PersistentVolume{second} })
		csitest.WantCode(t, r.Remove(t, "v"), codes.OK, "")
		if asked := a.Asked() + b.Asked(); asked != "delete v" {
			t.Errorf("the nodes were asked for: %s", asked)
		}
	}
}

// TestADeletionIsRemembered: who deletes twice is answered without a question to nodes or API, but only about the
// volume that was deleted.
func TestADeletionIsRemembered(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	of := func(uid string) nodeapi.PersistentVolume {
		pv := csitest.Named("pvc-1", "a")
		pv.UID = uid
		return pv
	}
	for name, c := range map[string]struct {
		between func()
		asked   string
	}{
		"at once":               {between: func() {}},
		"PV gone":               {between: func() { r.Set(func() { r.PVs = nil }) }},
		"PV gone, node as well": {between: func() { r.Set(func() { r.PVs, r.Drivers = nil, []string{"a", "b"} }) }},
		"API silent":            {between: func() { r.Set(func() { r.Silent = true }) }},
		"another PV": {
			between: func() { r.Set(func() { r.PVs = []nodeapi.PersistentVolume{of("2")} }) }, asked: "delete pvc-1",
		},
		"later": {between: func() { r.Pass(10 * time.Minute) }, asked: "delete pvc-1"},
		"made again": {
			between: func() {
				if _, err := r.Create(t, "1", csitest.GiB, "a"); err != nil {
					t.Error(err)
				}
			},
			asked: "create pvc-1, delete pvc-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.Set(func() { r.PVs, r.Silent, r.Drivers = []nodeapi.PersistentVolume{of("1")}, false, []string{"a"} })
			r.Pass(time.Hour)
			a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"})
			csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
			if asked := a.Asked(); asked != "delete pvc-1" {
				t.Errorf("the first time the node was asked for: %s", asked)
			}
			c.between()
			csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
			if asked := a.Asked(); asked != c.asked {
				t.Errorf("then the node was asked for %q, want %q", asked, c.asked)
			}
		})
	}
	r.Set(func() { r.PVs, r.Silent, r.Drivers = []nodeapi.PersistentVolume{of("3")}, false, []string{"a"} })
	a.Answers(func(context.Context, string) error { return status.Error(codes.FailedPrecondition, "mounted") })
	for range 2 {
		csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.FailedPrecondition, "mounted") // nothing is remembered of that
	}
	begun := make(chan struct{})
	finish := make(chan struct{})
	a.Answers(func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "delete") {
			begun <- struct{}{}
			<-finish
		}
		return nil
	})
	slow := make(chan error, 1)
	go func() { slow <- r.Remove(t, "pvc-1") }()
	select {
	case <-begun:
	case err := <-slow:
		t.Fatalf("the deletion ended before it reached the node: %v", err)
	}
	if _, err := r.Create(t, "1", csitest.GiB, "a"); err != nil {
		t.Error(err)
	}
	close(finish)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	a.Answers(nil)
	a.Asked()
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
	if asked := a.Asked(); asked != "delete pvc-1" {
		t.Errorf("a volume that was made while another was deleted was not deleted: %q", asked)
	}
}

// TestSizeNotEnforced: one event for each class and pool, not for each claim.
func TestSizeNotEnforced(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	a.Lie = func(v *pb.Volume) {
		v.VolumeContext = map[string]string{names.StoragePoolParameter: "local", "enforcement": "none", "uid": "1"}
	}
	r := csitest.Start(t, a)
	create := func(name, uid string) {
		t.Helper()
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: name, Parameters: map[string]string{
				nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: name,
				"uid": uid,
			},
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{csitest.Topology("a")}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pvc-1", "pvc-2", "pvc-1"} {
		create(name, "1")
	}
	create("pvc-3", "2")
	events := r.Told("")
	const first = "Normal default/pvc-1 SizeNotEnforced: pool local has no quota on node a"
	if len(events) != 2 || !strings.HasPrefix(events[0], first) ||
		!strings.HasPrefix(events[1], "Normal default/pvc-3 ") {
		t.Errorf("told was %q", events)
	}
}

// TestCodes: what a node answers is the answer, and an answer that is lost is asked for again.
func TestCodes(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", "a")}
	for _, code := range []codes.Code{
		codes.ResourceExhausted, codes.Unavailable, codes.Aborted, codes.AlreadyExists, codes.OutOfRange,
		codes.Internal,
		codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.DataLoss,
	} {
		a.Answers(func(context.Context, string) error { return status.Error(code, "because") })
		_, err := r.Create(t, "1", csitest.GiB, "a")
		for _, err := range []error{err, r.Expand(t, "v"), r.Remove(t, "v")} {
			csitest.WantCode(t, err, code, "because")
		}
	}
	calls := map[string]func() error{
		"create": func() error { _, err := r.Create(t, "1", csitest.GiB, "a"); return err },
		"expand": func() error { return r.Expand(t, "v") },
		"delete": func() error { return r.Remove(t, "v") },
	}
	for name, call := range calls {
		waittest.Until(t, "the node is connected", func() bool { return r.Hub.Get("a") != nil })
		a.Answers(func(ctx context.Context, _ string) error {
			r.Hub.Get("a").Close(errors.New("cut"))
			<-ctx.Done()
			return nil
		})
		if err := call(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	csitest.WantCode(t, r.Remove(t, "../v"), codes.InvalidArgument, "volume_id")
	csitest.WantCode(t, r.Expand(t, ""), codes.InvalidArgument, "missing")
	_, err := r.Create(t, strings.Repeat("x", 200), csitest.GiB)
	csitest.WantCode(t, err, codes.InvalidArgument, "invalid volume id")
}

// TestARefusalIsNotAskedForAgainAtOnce: csi-provisioner takes a claim back from a node without room and asks again at
// once. Another node is chosen at once, the same one only after a minute.
func TestARefusalIsNotAskedForAgainAtOnce(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 20*csitest.GiB), csitest.NewNode("b", 10*csitest.GiB)
	r := csitest.Start(t, a, b)
	refuse := func(context.Context, string) error { return status.Error(codes.ResourceExhausted, "no inodes") }
	a.Answers(refuse)
	ask := func(code codes.Code, text, asked string) {
		t.Helper()
		r.Set(func() { r.Claims["1"] = "" }) // taken back
		_, err := r.Create(t, "1", csitest.GiB)
		csitest.WantCode(t, err, code, text)
		if calls := a.Asked() + b.Asked(); calls != asked {
			t.Errorf("nodes were asked for %q, want %q", calls, asked)
		}
	}
	ask(codes.ResourceExhausted, "no inodes", "create pvc-1")
	ask(codes.Unavailable, "node a has the most room and refused volume pvc-1 less than a minute ago", "")
	r.Set(func() {
		if r.Claims["1"] != "" {
			t.Errorf("the claim has node %s", r.Claims["1"])
		}
	})
	r.Pass(time.Minute)
	ask(codes.ResourceExhausted, "no inodes", "create pvc-1")
	a.Show(nodeapi.PoolStatus{Name: "local", State: nodeapi.StatePresent})
	waittest.Until(t, "the room of node a is gone", func() bool {
		return r.Hub.Get("a").Pool("local").Allocatable == 0
	})
	ask(codes.OK, "", "create pvc-1")
}

// TestALyingNode: what it answers opens nothing of another node, and leads to no deletion there.
func TestALyingNode(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	for name, lie := range map[string]func(*pb.Volume){
		"another volume": func(v *pb.Volume) { v.VolumeId = "pvc-victim" },
		"too small":      func(v *pb.Volume) { v.CapacityBytes = 1 },
		"nothing":        func(v *pb.Volume) { v.Reset() },
	} {
		a.Lie = lie
		if _, err := r.Create(t, "1", csitest.GiB, "a"); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.Lie = func(v *pb.Volume) {
		v.AccessibleTopology = []*pb.Topology{csitest.Topology("victim")}
		v.ContentSource = &pb.VolumeContentSource{}
		v.VolumeContext = map[string]string{
			names.StoragePoolParameter: "victim", "enforcement": "strict", "uid": "0", "onDelete": "retain",
			"storage.kubernetes.io/x": "y",
		}
	}
	if node, err := r.Create(t, "1", csitest.GiB, "a"); node != "a" || err != nil {
		t.Errorf("it is on node %q, %v", node, err)
	}
	answer, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: "pvc-2",
		Parameters: map[string]string{
			names.StoragePoolParameter: "local", "onDelete": "delete", nodeapi.KeyClaimName: "claim",
		},
		AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{csitest.Topology("a")}},
	})
	want := map[string]string{names.StoragePoolParameter: "local", "enforcement": "strict", "onDelete": "delete"}
	if got := answer.GetVolume().GetVolumeContext(); err != nil || !maps.Equal(got, want) {
		t.Errorf("attributes are %v, want %v; %v", got, want, err)
	}
}

// TestPlacement: where new volumes go.
func TestPlacement(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 10*csitest.GiB), csitest.NewNode("b", 20*csitest.GiB)
	r := csitest.Start(t, a, b)
	r.Drivers = append(r.Drivers, "c")
	const none = "no claim"
	for name, c := range map[string]struct {
		selected string // before
		other    string
		bytes    int64
		allowed  []string
		silent   bool
		on       *csitest.Node
		want     string
		code     codes.Code
		text     string
	}{
		"the node of the pod":      {selected: none, allowed: []string{"a"}, want: "a"},
		"the roomiest":             {want: "b"},
		"of those allowed":         {allowed: []string{"a", "c", "a"}, want: "a"},
		"of an earlier request":    {selected: "a", bytes: 100 * csitest.GiB, want: "a"},
		"of another controller":    {other: "a", want: "a"},
		"claim gone, volume there": {selected: none, on: a, want: "a"},
		"claim gone":               {selected: none, code: codes.InvalidArgument, text: "claim default/claim is gone"},
		"too large": {
			bytes: 21 * csitest.GiB, code: codes.ResourceExhausted,
			text: "no connected node has 21Gi in pool local; the most is 20Gi; pool local is present on 2 of 3 " +
				"nodes; c: it is not connected",
		},
		"API is silent": {silent: true, code: codes.Unavailable, text: "connection refused"},
		"selected, not allowed": {
			selected: "b", allowed: []string{"a", "c"}, code: codes.InvalidArgument,
			text: `names node "b", which is none of`,
		},
		"selected by another, not allowed": {
			other: "b", allowed: []string{"a", "c"}, code: codes.InvalidArgument,
			text: `names node "b", which is none of`,
		},
		"selected and allowed": {selected: "b", allowed: []string{"a", "b"}, want: "b"},
		"allowed are away":     {allowed: []string{"c", "d"}, code: codes.ResourceExhausted, text: "no connected node"},
	} {
		t.Run(name, func(t *testing.T) {
			uid := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			r.Set(func() {
				if r.Other, r.Silent = c.other, c.silent; c.selected != none {
					r.Claims[uid] = c.selected
				}
				r.Drivers = []string{"a", "b", "c"}
				if c.on != nil {
					r.Drivers = []string{"a", "b"}
					c.on.Put(nodeapi.VolumeStatus{ID: "pvc-" + uid})
				}
				if c.selected == none {
					r.Drivers = []string{"a", "b"}
				}
			})
			for _, n := range []*csitest.Node{a, b} {
				n.Asked()
				n.Answers(func(context.Context, string) error { // the claim has the node before
					r.Set(func() {
						if c.selected != none && r.Claims[uid] != n.Name {
							t.Errorf("node %s is asked while the claim has %q", n.Name, r.Claims[uid])
						}
					})
					return nil
				})
			}
			node, err := r.Create(t, uid, c.bytes, c.allowed...)
			if csitest.WantCode(t, err, c.code, c.text); node != c.want {
				t.Errorf("it is on %q, want %q", node, c.want)
			}
			if calls := a.Asked() + b.Asked(); (c.want == "") != (calls == "") {
				t.Errorf("nodes were asked for %q", calls)
			}
			r.Set(func() {
				if c.code == codes.ResourceExhausted && r.Claims[uid] != "" {
					t.Errorf("the claim has node %s", r.Claims[uid])
				}
			})
		})
	}
}

func TestBadPlacement(t *testing.T) {
	t.Parallel()
	r := csitest.Start(t, csitest.NewNode("a", csitest.GiB))
	r.Claims["1"] = ""
	for text, q := range map[string]*pb.CreateVolumeRequest{
		"allowedTopologies may name no other": {
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{
				{Segments: map[string]string{linktest.TopologyKey: "a", "zone": "1"}},
			}},
		},
		"want the key " + linktest.TopologyKey: {
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
		csitest.WantCode(t, err, codes.InvalidArgument, text)
	}
	for _, bad := range []string{"", "a/b"} {
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: bad})
		if csitest.WantCode(t, err, codes.InvalidArgument, ": name: "); strings.Contains(err.Error(), "volume_id") {
			t.Errorf("the name is called another: %v", err)
		}
	}
}

// TestOneClaimHasOneNode: also when the controller crashes between answer and PersistentVolume, when two controllers
// work at once, and when nobody in Kubernetes asks.
func TestOneClaimHasOneNode(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 10*csitest.GiB), csitest.NewNode("b", 20*csitest.GiB)
	r := csitest.Start(t, a, b)
	r.Claims["1"] = ""
	show := func(n *csitest.Node, largest int64) {
		n.Show(nodeapi.PoolStatus{Name: "local", Allocatable: largest})
		waittest.Until(t, n.Name+" has shown its room", func() bool {
			pools, _ := r.Hub.Get(n.Name).Pools()
			return pools[0].Allocatable == largest
		})
	}
	unclaimed := &pb.CreateVolumeRequest{Name: "sanity"}
	if _, err := r.CreateVolume(t.Context(), unclaimed); err != nil {
		t.Fatal(err)
	}
	if node, err := r.Create(t, "1", csitest.GiB); node != "b" || err != nil {
		t.Fatalf("on %q: %v", node, err)
	}
	show(a, 30*csitest.GiB)
	next := r.Serve(t, a, b)
	if node, err := next.Create(t, "1", csitest.GiB); node != "b" || err != nil {
		t.Errorf("a new controller chose %q: %v", node, err)
	}
	if answer, err := next.CreateVolume(t.Context(), unclaimed); err != nil ||
		answer.GetVolume().GetAccessibleTopology()[0].GetSegments()[linktest.TopologyKey] != "b" {
		t.Errorf("a volume without claim: %v, %v", answer, err)
	}
	for i := range 20 {
		uid := fmt.Sprint("race-", i)
		r.Set(func() { r.Claims[uid] = "" })
		if i == 10 {
			show(b, 40*csitest.GiB)
		}
		chosen := make(chan string, 2)
		for _, c := range []csitest.Controller{r, next} {
			go func() {
				node, err := c.Create(t, uid, csitest.GiB)
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
	a, b := csitest.NewNode("a", 100*csitest.GiB+12345), csitest.NewNode("b", csitest.GiB-1)
	r := csitest.Start(t, a, b)
	for node, want := range map[string]int64{"a": 100 * csitest.GiB, "b": csitest.GiB - 64<<20} {
		if got, err := r.Capacity(t, node); got != want || err != nil {
			t.Errorf("%s has %d: %v", node, got, err)
		}
	}
	answer, err := r.GetCapacity(t.Context(), &pb.GetCapacityRequest{})
	if answer.GetMaximumVolumeSize().GetValue() != 100*csitest.GiB || err != nil {
		t.Errorf("the cluster: %v, %v", answer, err)
	}
	answer, err = r.GetCapacity(t.Context(), &pb.GetCapacityRequest{
		AccessibleTopology: csitest.Topology("a"), Parameters: map[string]string{names.StoragePoolParameter: "other"},
	})
	if answer.GetAvailableCapacity() != 0 || answer.GetMaximumVolumeSize() == nil || err != nil {
		t.Errorf("another pool: %v, %v", answer, err)
	}
}

// TestReady: sidecars wait at the start for the API, and for nodes as long as their grace.
func TestReady(t *testing.T) {
	t.Parallel()
	r := csitest.Start(t)
	ready := func(want bool) {
		t.Helper()
		answer, err := r.Identity.Probe(t.Context(), &pb.ProbeRequest{})
		if err != nil || answer.GetReady().GetValue() != want || (r.Hub.Ready() == nil) != want {
			t.Errorf("ready is %v, %v; want %t", answer, err, want)
		}
	}
	r.Set(func() { r.Syncing, r.Drivers = true, []string{"a", "b"} })
	ready(false)
	r.Set(func() { r.Syncing = false })
	ready(false)
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	r.Hub.Connect(t, &a.Node)
	ready(false)
	stop := r.Hub.Connect(t, &b.Node)
	ready(true)
	stop()
	waittest.Until(t, "b is away", func() bool { return r.Hub.Get("b") == nil })
	r.Pass(time.Minute)
	ready(true)
	late := r.Serve(t, a)
	answer, err := late.Identity.Probe(t.Context(), &pb.ProbeRequest{})
	if err != nil || answer.GetReady().GetValue() {
		t.Errorf("a new controller is ready before its nodes: %v", err)
	}
	r.Pass(time.Minute)
	if answer, err = late.Identity.Probe(t.Context(), &pb.ProbeRequest{}); err != nil || !answer.GetReady().GetValue() {
		t.Errorf("a new controller is not ready after the grace: %v", err)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	answer, err := csitest.Start(t).ControllerGetCapabilities(t.Context(), &pb.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var can []string
	for _, c := range answer.GetCapabilities() {
		can = append(can, c.GetRpc().GetType().String())
	}
	want := []string{
		"CREATE_DELETE_VOLUME", "GET_CAPACITY", "EXPAND_VOLUME", "SINGLE_NODE_MULTI_WRITER", "CREATE_DELETE_SNAPSHOT",
		"LIST_SNAPSHOTS", "CLONE_VOLUME",
	}
	if !slices.Equal(can, want) {
		t.Errorf("it can %v", can)
	}
	if _, err := csi.New(csi.Config{}); err == nil {
		t.Error("New takes nothing")
	}
}
