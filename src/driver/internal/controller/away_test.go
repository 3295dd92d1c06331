package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestANodeIsAway: within its grace nothing changes; after that claims go elsewhere, and its capacity is 0.
func TestANodeIsAway(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	r.Drivers, r.PVs = []string{"a"}, []nodeapi.PersistentVolume{csitest.Named("v", "a")}
	r.Gone["a"] = time.Time{}
	away := func(why string) {
		t.Helper()
		r.Pass(time.Minute - 100*time.Millisecond)
		_, err := r.Create(t, "1", csitest.GiB, "a")
		csitest.WantCode(t, err, codes.Unavailable, "node a is not connected to the controller, for 1m0s")
		_, err = r.Capacity(t, "a")
		csitest.WantCode(t, err, codes.Unavailable, "node a is not connected")
		r.Pass(100 * time.Millisecond)
		if free, err := r.Capacity(t, "a"); free != 0 || err != nil {
			t.Errorf("%s: capacity %d, %v", why, free, err)
		}
		for _, c := range []struct {
			tunnel, silent bool
			code           codes.Code
			text           string
		}{
			{true, false, codes.ResourceExhausted, "another node is to be chosen"},
			{false, false, codes.Unavailable, "a version without a controller"},
			{true, true, codes.Unavailable, "connection refused"},
		} {
			r.Set(func() { r.Tunnel, r.Silent = map[string]bool{"a": c.tunnel}, c.silent })
			_, err := r.Create(t, "1", csitest.GiB, "a")
			csitest.WantCode(t, err, c.code, c.text)
		}
		r.Set(func() { r.Silent = false })
		csitest.WantCode(t, r.Expand(t, "v"), codes.Unavailable, "node a is not connected")
		csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "node a is not connected")
		r.Set(func() { r.Unsure = true })
		csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "see whether node a, which is not connected, is gone: "+
			nodeapi.ErrClusterUnknown.Error()+": forbidden")
		r.Set(func() { r.Unsure = false })
	}
	away("it never came")
	stop := r.Hub.Connect(t, &a.Node)
	if node, err := r.Create(t, "1", csitest.GiB, "a"); node != "a" || err != nil {
		t.Errorf("back: on %q, %v", node, err)
	}
	if free, err := r.Capacity(t, "a"); free != csitest.GiB || err != nil {
		t.Errorf("back: capacity %d, %v", free, err)
	}
	stop()
	tunneltest.Until(t, "it is away", func() bool { return r.Hub.Get("a") == nil })
	away("it left")
}

// TestANodeComesBackInTime: a request that waits for it is answered by it.
func TestANodeComesBackInTime(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	created := make(chan error, 1)
	go func() { _, err := r.Create(t, "1", csitest.GiB, "a"); created <- err }()
	time.Sleep(200 * time.Millisecond) // so that it most often waits already
	r.Hub.Connect(t, &a.Node)
	if err := <-created; err != nil || a.Asked() != "create pvc-1" {
		t.Errorf("got %v", err)
	}
}

// slow is a node that shows its pools late.
type slow struct {
	*csitest.Node
	show chan struct{}
}

func (s slow) Pools() []nodeapi.PoolStatus {
	<-s.show
	return s.Node.Pools()
}

// TestCapacityThatIsNotKnown: a node that has just connected does not count as full.
func TestCapacityThatIsNotKnown(t *testing.T) {
	t.Parallel()
	r := csitest.Start(t)
	r.Pass(time.Hour)
	a := slow{csitest.NewNode("a", csitest.GiB), make(chan struct{})}
	config := a.Config(r.Hub.Address, r.Hub.Authority.PEM)
	config.Source = a
	end, err := tunnel.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	tunneltest.Run(t, end)
	tunneltest.Until(t, "it is connected", func() bool { return r.Hub.Get("a") != nil })
	_, err = r.Capacity(t, "a")
	csitest.WantCode(t, err, codes.Unavailable, "has not shown its pools yet")
	close(a.show)
	tunneltest.Until(t, "its room is known", func() bool {
		free, err := r.Capacity(t, "a")
		return free == csitest.GiB && err == nil
	})
}

// TestRelease: the volume of a node that is gone may be forgotten, and nobody else's.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := csitest.Start(t)
	now := r.Clock
	for name, c := range map[string]struct {
		gone     time.Time
		released string
		want     codes.Code
		event    string
	}{
		"there":          {want: codes.Unavailable},
		"just gone":      {gone: now.Add(-10*time.Minute + time.Second), want: codes.Unavailable},
		"gone":           {gone: now.Add(-10 * time.Minute), event: "node z is gone: the volume counts as deleted"},
		"given up":       {released: "z", event: "its annotation gives up what is on node z: the volume counts as deleted"},
		"given up wrong": {released: "y", want: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			pv := csitest.Named("v", "z")
			pv.Released = c.released
			r.Set(func() { r.PVs, r.Gone = []nodeapi.PersistentVolume{pv}, map[string]time.Time{"z": c.gone} })
			csitest.WantCode(t, r.Expand(t, "v"), codes.Unavailable, "node z is not connected")
			csitest.WantCode(t, r.Remove(t, "v"), c.want, "node z is not connected")
			events := r.Told("")
			if c.event == "" && len(events) > 0 || c.event != "" && (len(events) != 1 ||
				!strings.HasPrefix(events[0], "Warning pv-v VolumeReleased: "+c.event+"; its data may be left")) {
				t.Errorf("events %q", events)
			}
		})
	}
	// A node that is connected is asked, whatever else is said about it.
	z := csitest.NewNode("z", csitest.GiB)
	r.Hub.Connect(t, &z.Node)
	pv := csitest.Named("v", "z")
	pv.Released = "z"
	r.Set(func() { r.PVs = []nodeapi.PersistentVolume{pv} })
	if err := r.Remove(t, "v"); err != nil || z.Asked() != "delete v" || len(r.Told("")) > 0 {
		t.Errorf("connected: %v", err)
	}
}

// TestAGoneNodeMayHaveAVolumeOfAnyNode: a PersistentVolume that names no node does not make the absence of one without
// a Node object count sooner.
func TestAGoneNodeMayHaveAVolumeOfAnyNode(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"known as a node with the driver": false, "forgotten with its Node": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, c := csitest.NewNode("a", csitest.GiB), csitest.NewNode("c", csitest.GiB)
			r := csitest.Start(t, a)
			r.Set(func() { r.PVs, r.Gone["c"] = []nodeapi.PersistentVolume{csitest.Named("v")}, r.Clock })
			if forget {
				r.Hub.Forget("c")
			} else {
				r.Set(func() { r.Drivers = append(r.Drivers, "c") })
			}
			r.Pass(time.Minute)
			csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "could not be asked: c (node c is not connected")
			r.Pass(9*time.Minute - time.Second)
			csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "could not be asked: c (node c is not connected")
			if asked := a.Asked(); asked != "" {
				t.Errorf("node a was asked for: %s", asked)
			}
			r.Pass(time.Second)
			csitest.WantCode(t, r.Remove(t, "v"), codes.OK, "")
			c.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
			r.Hub.Connect(t, &c.Node) // it is back after all
			csitest.WantCode(t, r.Remove(t, "v"), codes.OK, "")
			if asked := c.Asked(); asked != "delete v" {
				t.Errorf("node c was asked for: %s", asked)
			}
		})
	}
}

// TestMissing: people hear of a node that is away for longer than its grace, once, and of its return.
func TestMissing(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	r.Set(func() {
		r.Drivers, r.Syncing, r.Cleared = []string{"a"}, true, map[string]bool{"a": true, "b": true}
		r.Tunnel = map[string]bool{"a": true}
	})
	r.Look(t)
	if nodes := r.Server.Nodes(); len(nodes) != 1 { // from now on it is waited for
		t.Errorf("nodes are %v", nodes)
	}
	r.Pass(time.Minute)
	r.Set(func() { r.Syncing = false })
	var events []string
	tunneltest.Until(t, "the node is missed", func() bool { events = r.Told(""); return len(events) > 0 })
	if len(events) != 1 || !strings.HasPrefix(events[0], "Warning a NodeNotConnected: ") ||
		!strings.Contains(events[0], "for 1m0s") {
		t.Errorf("told was %q", events)
	}
	connected := func() map[string]float64 {
		return tunneltest.Samples(t, r.Hub.Metrics, "hpp_controller_node_connected")
	}
	if got := connected(); got["a"] != 0 || len(got) != 1 {
		t.Errorf("connected are %v", got)
	}
	r.Hub.Connect(t, &a.Node)
	tunneltest.Until(t, "it is back", func() bool { return len(r.Told("Normal a NodeConnected")) == 1 })
	// What drivers without a controller have published is looked for after the grace, once an hour, until none is left.
	listed := func(count int) {
		t.Helper()
		tunneltest.Until(t, fmt.Sprint(count, " lists of capacity"), func() (done bool) {
			r.Set(func() { done = r.CapacityLists >= count })
			return done
		})
	}
	listed(1)
	r.Pass(time.Hour)
	listed(2)
	r.Set(func() {
		if !maps.Equal(r.Cleared, map[string]bool{"b": true}) || len(r.Events) > 0 {
			t.Errorf("old capacity is left of %v; more events: %q", r.Cleared, r.Events)
		}
		r.Cleared = nil
	})
	r.Pass(time.Hour)
	listed(3)
	r.Set(func() { r.NodeLists = 0 })
	r.Pass(time.Hour)
	tunneltest.Until(t, "nodes are looked at again", func() (done bool) {
		r.Set(func() { done = r.NodeLists > 1 })
		return done
	})
	r.Set(func() {
		if r.CapacityLists != 3 {
			t.Errorf("capacity was listed %d times, the last time without any", r.CapacityLists)
		}
	})
	if got := connected(); got["a"] != 1 {
		t.Errorf("connected are %v", got)
	}
}

// suspects are volumes of node a, some of them orphans.
func suspects(r csitest.Controller) []nodeapi.VolumeStatus {
	old := r.Clock.Add(-2 * time.Hour)
	return []nodeapi.VolumeStatus{
		{ID: "good", Pool: "local", Created: old, Bytes: csitest.GiB, Used: 5, Claim: "default/claim"},
		{ID: "unnamed", Pool: "local", Created: old, Used: -1},
		{ID: "young", Pool: "local", Created: r.Clock},
		{ID: "elsewhere", Pool: "local", Created: old},
		{ID: "everywhere", Pool: "local", Created: old},
		{ID: "csi-used", Pool: "local", Created: old, Ephemeral: true, Published: true},
		{ID: "csi-left", Pool: "local", Created: old, Ephemeral: true},
	}
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("good", "a"), csitest.Named("elsewhere", "b"), csitest.Named("everywhere")}
	a.Put(suspects(r)...)
	r.Look(t)
	for round := range 3 {
		stop := r.Hub.Connect(t, &a.Node)
		want := []string{
			"Warning a VolumesOrphaned: pool local: no PersistentVolume, and for inline volumes no pod, names: " +
				"csi-left, unnamed",
			"Warning a VolumesOfOtherNodes: pool local: the PersistentVolume names another node: elsewhere (node b)",
		}
		switch round {
		case 0:
			for _, text := range want {
				tunneltest.Until(t, text, func() bool { return len(r.Told(text)) == 1 })
			}
		case 1: // it is searched again, and nothing is new; but not twice in a minute
			r.Pass(time.Minute)
			r.Set(func() { r.Gets = 0 })
			stop = r.Reconnect(t, a, stop)
			tunneltest.Until(t, "it is searched", func() (done bool) {
				r.Set(func() { done = r.Gets >= 5 })
				return done
			})
			stop = r.Reconnect(t, a, stop)
			time.Sleep(50 * time.Millisecond) // so that a second search would show
			r.Set(func() {
				if r.Gets != 5 { // all that are old, and not an inline volume in use
					t.Errorf("%d PersistentVolumes were looked up", r.Gets)
				}
			})
		case 2:
			r.Pass(2 * time.Hour)
			stop = r.Reconnect(t, a, stop)
			tunneltest.Until(t, "one is not young any more", func() bool { return len(r.Told("young")) == 1 })
		}
		if events := r.Told(""); len(events) > 0 {
			t.Errorf("round %d: more events: %q", round, events)
		}
		found := map[string]float64{
			"unnamed a local": 2, "elsewhere a local": 1,
		}
		if round == 2 {
			found["unnamed a local"] = 3
		}
		if got := r.Samples(t, "hpp_controller_orphans"); !maps.Equal(got, found) {
			t.Errorf("metric %v, want %v", got, found)
		}
		stop()
		tunneltest.Until(t, "it is away", func() bool { return r.Hub.Get("a") == nil })
	}
	if got := r.Samples(t, "hpp_controller_orphans"); len(got) != 0 {
		t.Errorf("of a node that is gone: %v", got)
	}
}

// TestOrphansBesideAPoolThatHangs are reported, and those in it stand as they were found before.
func TestOrphansBesideAPoolThatHangs(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	a.Put(nodeapi.VolumeStatus{ID: "unnamed", Pool: "local", Created: r.Clock.Add(-2 * time.Hour)})
	a.Fail(errors.New("pool nfs does not answer"))
	for round := range 4 {
		r.Server.SearchNode(t.Context(), "a")
		if got := r.Samples(t, "hpp_controller_orphans")["unnamed a local"]; got != 1 {
			t.Errorf("round %d: %v orphans, want 1", round, got)
		}
		a.Remove()
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", 2*csitest.GiB)
	r := csitest.Start(t, a, b)
	lost := csitest.Named("lost", "c")
	lost.Claim = nodeapi.Claim{Namespace: "default", Name: "lost"}
	former := csitest.Named("former", "b")
	unsaid := csitest.Named("unsaid", "b") // of the default pool
	former.Pool, unsaid.Pool = "former", ""
	r.Set(func() {
		r.Drivers = append(r.Drivers, "c")
		r.PVs = []nodeapi.PersistentVolume{
			csitest.Named("good", "a"), csitest.Named("elsewhere", "b"), csitest.Named("everywhere"), lost, csitest.Named("missing", "b"), former, unsaid,
		}
	})
	a.Put(suspects(r)...)
	nodes := map[string]string{}
	for _, n := range r.Server.Nodes() {
		nodes[n.Name] = n.State
		if n.Name == "b" && (len(n.Pools) != 1 || n.Pools[0].Allocatable != 2*csitest.GiB || n.Pools[0].State != "present" ||
			n.Version != "v1" || n.Seen.Before(n.Since)) {
			t.Errorf("node b is %+v", n)
		}
	}
	if want := map[string]string{"a": "connected", "b": "connected", "c": "not connected"}; !maps.Equal(nodes, want) {
		t.Errorf("nodes are %v", nodes)
	}
	volumes, err := r.Server.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, v := range volumes {
		states[v.ID+" on "+v.Node] = v.State
		if v.ID == "good" && (v.PV != "pv-good" || v.Claim != "default/claim" || v.Bytes != csitest.GiB || v.Used != 5) ||
			v.ID == "lost" && (v.Claim != "default/lost" || v.Bytes != csitest.GiB || v.Used != -1) {
			t.Errorf("shown is %+v", v)
		}
	}
	want := map[string]string{
		"good on a": "", "unnamed on a": "orphan", "young on a": "", "elsewhere on a": "orphan, of node b",
		"everywhere on a": "", "csi-used on a": "", "csi-left on a": "orphan", "lost on c": "node not connected",
		"missing on b": "not found", "former on b": "pool not configured", "unsaid on b": "not found",
	}
	if !maps.Equal(states, want) {
		t.Errorf("states are %v, want %v", states, want)
	}
}

// TestANodeHangs: what needs it ends by its deadline, and others do not wait.
func TestANodeHangs(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	b.Search = func(ctx context.Context, _ string) (bool, error) { return false, hang(ctx) }
	b.Answers(func(ctx context.Context, _ string) error { return hang(ctx) })
	r := csitest.Start(t, a, b)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("on-a", "a"), csitest.Named("on-b", "b")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ended := make(chan error, 20)
	for i := range 20 {
		id := []string{"on-b", "unnamed"}[i%2]
		go func() { _, err := r.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: id}); ended <- err }()
	}
	for range 20 {
		if err := r.Expand(t, "on-a"); err != nil {
			t.Error(err)
		}
	}
	for range 20 {
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
	}
}

// TestASilentNodeDoesNotHoldWhatAnotherHas: a call without a deadline of its own ends, and goes to the node that has
// the volume; where none has, the silent one may.
func TestASilentNodeDoesNotHoldWhatAnotherHas(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	b.Search = func(ctx context.Context, _ string) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
	r := csitest.Start(t, a, b)
	a.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
	ctx := context.WithoutCancel(t.Context())
	if _, err := r.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: "v"}); err != nil || a.Asked() != "delete v" {
		t.Errorf("got %v", err)
	}
	_, err := r.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: "v"})
	csitest.WantCode(t, err, codes.Unavailable, "could not be asked: b (context deadline exceeded)")
}

// TestANodeThatListsTooMuch: the API is not asked about whatever a node makes up.
func TestANodeThatListsTooMuch(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	old := r.Clock.Add(-2 * time.Hour)
	for i := range 1500 {
		a.Put(nodeapi.VolumeStatus{ID: fmt.Sprint("made-up-", i), Pool: "local", Created: old})
	}
	a.Put(nodeapi.VolumeStatus{ID: "../x", Pool: "local", Created: old})
	a.Put(nodeapi.VolumeStatus{ID: "ok", Pool: "No Pool", Created: old})
	r.Look(t)
	r.Hub.Connect(t, &a.Node)
	tunneltest.Until(t, "it is searched", func() bool { return len(r.Told("VolumesOrphaned")) == 1 })
	if got := r.Samples(t, "hpp_controller_orphans"); r.Gets != 1000 || got["unnamed a local"] != 1000 {
		t.Errorf("%d were asked for, and %v are orphans", r.Gets, got)
	}
	if all, err := r.Server.Volumes(t.Context()); len(all) != 1500 || err != nil {
		t.Errorf("%d volumes are listed, %v", len(all), err)
	}
}
