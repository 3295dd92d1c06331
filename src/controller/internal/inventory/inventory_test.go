package inventory_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// suspects are volumes of node a, some of them orphans.
func suspects(r csitest.Controller) []nodeapi.VolumeStatus {
	old := r.Clock.Add(-2 * time.Hour)
	return []nodeapi.VolumeStatus{
		{ID: "good", Pool: "local", Created: old, Bytes: csitest.GiB, Used: 5, Claim: "default/claim"},
		{ID: "unnamed", Pool: "local", Created: old, Used: -1},
		{ID: "moving", Pool: "local", Created: old},
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
	r.PVs = []nodeapi.PersistentVolume{
		csitest.Named("good", "a"), csitest.Named("elsewhere", "b"), csitest.Named("everywhere"),
	}
	r.Moves = map[string]string{"moving": "b"}
	a.Put(suspects(r)...)
	r.Look(t)
	for round := range 3 {
		stop := r.Hub.Connect(t, &a.Node)
		r.Pass(10 * time.Second) // it settles
		want := []string{
			"Warning a VolumesOrphaned: pool local: no PersistentVolume, and for inline volumes no pod, names: " +
				"csi-left, unnamed",
			"Warning a VolumesOfOtherNodes: pool local: the PersistentVolume names another node: elsewhere (node b)",
		}
		switch round {
		case 0:
			for _, text := range want {
				waittest.Until(t, text, func() bool { return len(r.Told(text)) == 1 })
			}
		case 1: // it is searched again, and nothing is new; but not twice in a minute
			r.Set(func() { r.Gets = 0 })
			r.Pass(time.Minute)
			waittest.Until(t, "it is searched", func() (done bool) {
				r.Set(func() { done = r.Gets >= 5 })
				return done
			})
			stop = r.Reconnect(t, a, stop)
			r.Pass(30 * time.Second)
			time.Sleep(1500 * time.Millisecond) // so that a second search would show
			r.Set(func() {
				if r.Gets != 5 { // all that are old, and not an inline volume in use
					t.Errorf("%d PersistentVolumes were looked up", r.Gets)
				}
			})
		case 2:
			r.Pass(2 * time.Hour)
			waittest.Until(t, "one is not young any more", func() bool { return len(r.Told("young")) == 1 })
		}
		if events := r.Told(""); len(events) > 0 {
			t.Errorf("round %d: more events: %q", round, events)
		}
		found := map[string]float64{
			"no-pv a local": 2, "other-node a local": 1, "other-pool a local": 0, "no-snapshot-content a local": 0,
		}
		if round == 2 {
			found["no-pv a local"] = 3
		}
		if got := r.Samples(t, "hpp_controller_orphans"); !maps.Equal(got, found) {
			t.Errorf("metric %v, want %v", got, found)
		}
		stop()
		waittest.Until(t, "it is away", func() bool { return r.Hub.Get("a") == nil })
	}
	if got := r.Samples(t, "hpp_controller_orphans"); len(got) != 0 {
		t.Errorf("of a node that is gone: %v", got)
	}
}

// TestOrphanSnapshots are those that no VolumeSnapshotContent names, in a cluster that has snapshots.
func TestOrphanSnapshots(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	old := r.Clock.Add(-2 * time.Hour)
	for _, s := range []nodeapi.VolumeStatus{
		{ID: "good", Created: old},
		{ID: "unnamed", Created: old},
		{ID: "young", Created: r.Clock},
		{ID: "made", Created: old, Copying: "1Gi is copied"},
		{ID: "part", Created: old, Copying: nodeapi.NotWhole},
	} {
		s.Pool, s.SnapshotOf = "local", "v"
		a.Put(s)
	}
	const event = "Warning a SnapshotsOrphaned: pool local: no VolumeSnapshotContent names: "
	const of = "snapshot of v"
	all := func(good, unnamed string) map[string]string {
		part := strings.ReplaceAll(unnamed, of, nodeapi.NotWhole)
		return map[string]string{"good": good, "unnamed": unnamed, "young": of, "made": "1Gi is copied", "part": part}
	}
	for _, c := range []struct {
		name     string
		contents map[string][]string
		silent   bool
		events   []string
		found    float64
		states   map[string]string
	}{
		{name: "no snapshots here", states: all(of, of)},
		{
			name: "one has none", contents: map[string][]string{"good": {"c"}},
			events: []string{event + "part, unnamed"}, found: 2, states: all(of, "orphan, "+of),
		},
		{
			name: "the API is silent", silent: true, found: 2,
			states: all(of+", perhaps an orphan: the Kubernetes API does not say",
				of+", perhaps an orphan: the Kubernetes API does not say"),
		},
		{
			name: "none has one", contents: map[string][]string{}, events: []string{event + "good, part, unnamed"},
			found: 3, states: all("orphan, "+of, "orphan, "+of),
		},
		{
			name: "all are named", contents: map[string][]string{"good": {"c"}, "unnamed": {"d"}, "part": {"e"}},
			states: all(of, of),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.Set(func() { r.Contents, r.Silent, r.Lists, r.Gets = c.contents, c.silent, 0, 0 })
			r.Inventory.SearchNode(t.Context(), "a")
			if got := r.Told(""); !slices.Equal(got, c.events) {
				t.Errorf("told %q", got)
			}
			if got := r.Samples(t, "hpp_controller_orphans")["no-snapshot-content a local"]; got != c.found {
				t.Errorf("%v are counted", got)
			}
			volumes, err := r.Inventory.Volumes(t.Context())
			states := map[string]string{}
			for _, v := range volumes {
				states[v.ID] = v.State
			}
			if !maps.Equal(states, c.states) || err != nil {
				t.Errorf("states are %q, %v", states, err)
			}
			if r.Lists != 1 || r.Gets != 0 { // the list serves both
				t.Errorf("asked %d times for VolumeSnapshotContents, and %d for PersistentVolumes", r.Lists, r.Gets)
			}
			r.Pass(time.Minute)
		})
	}
}

// TestNewOrphansAreReported, also where there were more before that are none any more.
func TestNewOrphansAreReported(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	for _, ids := range [][]string{{"one", "two"}, {"three"}} {
		a.Remove("one", "two")
		for _, id := range ids {
			a.Put(nodeapi.VolumeStatus{ID: id, Pool: "local", Created: r.Clock.Add(-2 * time.Hour)})
		}
		for range 2 {
			r.Inventory.SearchNode(t.Context(), "a")
		}
		if told := r.Told("VolumesOrphaned"); len(told) != 1 || !strings.HasSuffix(told[0], strings.Join(ids, ", ")) {
			t.Errorf("of %q it is said %q", ids, told)
		}
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
		r.Inventory.SearchNode(t.Context(), "a")
		if got := r.Samples(t, "hpp_controller_orphans")["no-pv a local"]; got != 1 {
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
			csitest.Named("good", "a"), csitest.Named("elsewhere", "b"), csitest.Named("everywhere"), lost,
			csitest.Named("missing", "b"), former, unsaid, csitest.Named("young-elsewhere", "b"),
		}
	})
	r.Moves = map[string]string{"moving": "b"}
	a.Put(suspects(r)...)
	a.Put(nodeapi.VolumeStatus{ID: "young-elsewhere", Pool: "local", Created: r.Clock})
	nodes := map[string]string{}
	for _, n := range r.Inventory.Nodes() {
		nodes[n.Name] = n.State
		if n.Name == "b" && (len(n.Pools) != 1 || n.Pools[0].Allocatable != 2*csitest.GiB ||
			n.Pools[0].State != "present" ||
			n.Version != "v1" || n.Seen.Before(n.Since)) {
			t.Errorf("node b is %+v", n)
		}
	}
	if want := map[string]string{"a": "connected", "b": "connected", "c": "not connected"}; !maps.Equal(nodes, want) {
		t.Errorf("nodes are %v", nodes)
	}
	volumes, err := r.Inventory.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, v := range volumes {
		states[v.ID+" on "+v.Node] = v.State
		if v.ID == "good" && (v.PV != "pv-good" || v.Claim != "default/claim" || v.Bytes != csitest.GiB ||
			v.Used != 5) ||
			v.ID == "lost" && (v.Claim != "default/lost" || v.Bytes != csitest.GiB || v.Used != -1) {
			t.Errorf("shown is %+v", v)
		}
	}
	want := map[string]string{
		"good on a": "", "moving on a": "moving to another node", "young on a": "",
		"unnamed on a": "orphan", "elsewhere on a": "orphan, of node b",
		"everywhere on a": "", "csi-used on a": "", "csi-left on a": "orphan", "lost on c": "node not connected",
		"missing on b": "not found", "former on b": "pool not configured", "unsaid on b": "not found",
		"young-elsewhere on a": "orphan, of node b",
	}
	if !maps.Equal(states, want) {
		t.Errorf("states are %v, want %v", states, want)
	}
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
	r.Pass(10 * time.Second) // it settles
	waittest.Until(t, "it is searched", func() bool { return len(r.Told("VolumesOrphaned")) == 1 })
	if got := r.Samples(t, "hpp_controller_orphans"); r.Gets != 1000 || got["no-pv a local"] != 1000 {
		t.Errorf("%d were asked for, and %v are orphans", r.Gets, got)
	}
	if all, err := r.Inventory.Volumes(t.Context()); len(all) != 1500 || err != nil {
		t.Errorf("%d volumes are listed, %v", len(all), err)
	}
}

// TestASharedVolumeIsOnAllNodes: it is no orphan where its PersistentVolume names one of them.
func TestASharedVolumeIsOnAllNodes(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false)
	b := csitest.NewNode("b", 0).Shows("AAAA", csitest.GiB, false)
	for _, n := range []*csitest.Node{a, b} {
		n.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local", Created: time.Unix(1, 0)})
	}
	r := csitest.StartKnown(t, a, b)
	r.Set(func() { r.PVs = []nodeapi.PersistentVolume{csitest.Named("pvc-1", "b")} })
	all, err := r.Inventory.Volumes(t.Context())
	if err != nil || len(all) != 1 || all[0].State != "" {
		t.Errorf("shown are %+v, %v", all, err)
	}
}

// TestACopyInAnotherPool than the one that the PersistentVolume names is an orphan, unless that is no pool any more:
// then it was renamed.
func TestACopyInAnotherPool(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.StartWith(t, []poolspec.Pool{{Name: "nvme0"}, {Name: "nvme1"}}, a)
	old := r.Clock.Add(-2 * time.Hour)
	named, renamed := csitest.Named("pvc-1", "a"), csitest.Named("pvc-2", "a")
	named.Pool, renamed.Pool = "nvme1", "former"
	r.Set(func() { r.PVs = []nodeapi.PersistentVolume{named, renamed} })
	a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "nvme0", Created: old},
		nodeapi.VolumeStatus{ID: "pvc-2", Pool: "nvme0", Created: old})
	r.Inventory.SearchNode(t.Context(), "a")
	want := "Warning a VolumesOfOtherPools: pool nvme0: the PersistentVolume names another pool: pvc-1 (pool nvme1)"
	if told := r.Told(""); len(told) != 1 || told[0] != want {
		t.Errorf("told was %q", told)
	}
	if got := r.Samples(t, "hpp_controller_orphans")["other-pool a nvme0"]; got != 1 {
		t.Errorf("%v copies are counted", got)
	}
	volumes, err := r.Inventory.Volumes(t.Context())
	states := map[string]string{}
	for _, v := range volumes {
		states[v.ID+" in "+v.Pool] = v.State
	}
	// Its own pool is not there.
	wanted := map[string]string{
		"pvc-1 in nvme0": "orphan, of pool nvme1", "pvc-1 in nvme1": "pool not configured", "pvc-2 in nvme0": "",
	}
	if err != nil || !maps.Equal(states, wanted) {
		t.Errorf("states are %v, %v, want %v", states, err, wanted)
	}
}

func TestAnOrphanHasAnAge(t *testing.T) {
	t.Parallel()
	if _, err := inventory.New(nil, nil, nil, 0, nil); err == nil {
		t.Error("New takes no age")
	}
}

// TestSnapshotIsNamedByNow: what a list of VolumeSnapshotContents does not name may be named since.
func TestSnapshotIsNamedByNow(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	a.Put(nodeapi.VolumeStatus{ID: "s", Pool: "local", SnapshotOf: "v", Created: r.Clock.Add(-2 * time.Hour)})
	for _, c := range []struct {
		contents map[string][]string
		state    string
		lists    int
	}{
		{map[string][]string{}, "orphan, snapshot of v", 1},
		{map[string][]string{"s": {"c"}}, "snapshot of v", 2},
		{map[string][]string{}, "snapshot of v", 2}, // for less than a minute
	} {
		r.Set(func() { r.Contents = c.contents })
		volumes, err := r.Inventory.Volumes(t.Context())
		if err != nil || len(volumes) != 1 || volumes[0].State != c.state || r.Lists != c.lists {
			t.Errorf("after %d lists: %+v, %v; want %+v", r.Lists, volumes, err, c)
		}
		r.Pass(time.Second)
	}
}
