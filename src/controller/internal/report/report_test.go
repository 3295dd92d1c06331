package report_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// world is a cluster with one driver's pod on each node, and what is written there. Events are told apart as
// Kubernetes does, by object, key and time.
type world struct {
	fleet.Cluster
	mu         sync.Mutex
	follows    bool // another replica leads
	clock      time.Time
	pvs        []nodeapi.PersistentVolume
	events     map[string]string
	conditions map[string][]corev1.PodCondition
	writes     int
	failing    string              // a pod that takes no conditions
	keeps      corev1.PodCondition // of another writer, on each pod
}

// start is when the tests begin.
func start() time.Time { return time.Unix(1_800_000_000, 0) }

func newWorld() *world {
	return &world{clock: start(), events: map[string]string{}, conditions: map[string][]corev1.PodCondition{}}
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) get(what func() bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return what()
}

func (w *world) Synced() bool { return true }

func (w *world) Leads() bool { return w.get(func() bool { return !w.follows }) }

func (w *world) NodesWithDriver(map[string]string) []string { return []string{"a", "b"} }

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) about(object string, e nodeapi.Event) {
	w.set(func() {
		text := object + " " + e.Kind + " " + e.Reason + ": " + e.Message
		w.events[fmt.Sprint(object, e.Key, e.Since.UnixNano())] = text
	})
}

func (w *world) AboutNode(name string, e nodeapi.Event)          { w.about(name, e) }
func (w *world) AboutClaim(claim nodeapi.Claim, e nodeapi.Event) { w.about(claim.String(), e) }

func (w *world) Known(handle string) []nodeapi.PersistentVolume {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.pvs), func(pv nodeapi.PersistentVolume) bool { return pv.Handle != handle })
}

func (w *world) Pod(node string) (string, []corev1.PodCondition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "csi-" + node, w.conditions["csi-"+node]
}

func (w *world) SetConditions(_ context.Context, pod string, conditions []corev1.PodCondition) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writes++; pod == w.failing {
		return errors.New("refused")
	}
	if w.conditions[pod] = conditions; w.keeps.Type != "" {
		w.conditions[pod] = append(slices.Clip(conditions), w.keeps)
	}
	return nil
}

// written is how often conditions were.
func (w *world) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// said are the events, sorted.
func (w *world) said() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		all = append(all, e)
	}
	slices.Sort(all)
	return all
}

// becomes waits until these are all events that there ever were.
func (w *world) becomes(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	waittest.Until(t, fmt.Sprintf("the events are %q", want), func() bool { return slices.Equal(w.said(), want) })
}

// shows waits until a pod has conditions, each in a line.
func (w *world) shows(t *testing.T, pod string, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("it shows %q", got)
		}
	}()
	waittest.Until(t, fmt.Sprintf("pod %s shows %q", pod, want), func() bool {
		got = nil
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.conditions[pod] {
			_, pool, _ := strings.Cut(string(c.Type), "/")
			got = append(got, fmt.Sprintf("%s %s %s: %s", pool, c.Status, c.Reason, c.Message))
		}
		return slices.Equal(got, want)
	})
}

// serve runs a controller that reports.
func serve(t *testing.T, w *world) *fleettest.Hub {
	t.Helper()
	hub := fleettest.NewHub(t, "127.0.0.1:0", func(c *fleet.Config) { c.Cluster, c.Now = w, w.Now })
	hub.Start(t)
	reporter, err := report.New(hub.Fleet, w, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); reporter.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return hub
}

func present(since time.Time) nodeapi.PoolStatus {
	return nodeapi.PoolStatus{
		Name: "local", Path: "/p", State: nodeapi.StatePresent, ID: "A", Configured: true, Enforcement: "strict",
		Since: since, Seen: start(),
	}
}

// TestAPoolComesAndGoes: each change is said once, also by a controller that begins anew, and conditions follow.
func TestAPoolComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld()
	hub := serve(t, w)
	a := &linktest.Node{Name: "a"}
	a.Show(present(start()))
	hub.Connect(t, a)
	const here = "a Normal PoolPresent: pool local: /p can be used; enforcement of sizes: strict"
	w.becomes(t, here)
	w.shows(t, "csi-a", "local True PoolPresent: /p can be used; enforcement of sizes: strict")

	absent := present(start().Add(time.Second))
	absent.State, absent.ID, absent.Reason, absent.Message = nodeapi.StateAbsent, "", "PathMissing", "/p is gone"
	a.Show(absent)
	const gone = "a Warning PoolAbsent: pool local: PathMissing: /p is gone"
	w.becomes(t, here, gone)
	w.shows(t, "csi-a", "local False PoolAbsent: PathMissing: /p is gone")

	absent.Message = "the same in other words"
	a.Show(absent)
	other := serve(t, w) // with the memory of Kubernetes alone
	b := &linktest.Node{Name: "a"}
	b.Show(absent)
	other.Connect(t, b)
	writes := w.written()
	again := present(start().Add(2 * time.Second))
	a.Show(again)
	b.Show(again)
	waittest.Until(t, "it is said that the pool is back", func() bool { return len(w.said()) == 3 })
	if diff := cmp.Diff([]string{here, here, gone}, w.said()); diff != "" || w.written() > writes+2 {
		t.Errorf("%d writes instead of %d; %s", w.written(), writes+1, diff)
	}
}

// TestWhatIsOldWasSaid: a controller that starts says nothing of what happened long before by the node's own clock.
func TestWhatIsOldWasSaid(t *testing.T) {
	t.Parallel()
	w := newWorld()
	hub := serve(t, w)
	behind := start().Add(-365 * 24 * time.Hour) // the clock of this node
	a := &linktest.Node{Name: "a"}
	old, recent := present(behind.Add(-2*time.Hour)), present(behind.Add(-time.Minute))
	old.Seen, recent.Seen, recent.Name = behind, behind, "recent"
	a.Show(old, recent)
	hub.Connect(t, a)
	w.becomes(t, "a Normal PoolPresent: pool recent: /p can be used; enforcement of sizes: strict")
	w.shows(t, "csi-a", "local True PoolPresent: /p can be used; enforcement of sizes: strict",
		"recent True PoolPresent: /p can be used; enforcement of sizes: strict")
}

// TestWarnings reach the owners of the volumes that they are about, if these are the node's.
func TestWarnings(t *testing.T) {
	t.Parallel()
	w := newWorld()
	named := func(id, node string) nodeapi.PersistentVolume {
		return nodeapi.PersistentVolume{
			Handle: id, Nodes: []string{node}, Pool: "local", Claim: nodeapi.Claim{Namespace: "shop", Name: id},
		}
	}
	w.pvs = []nodeapi.PersistentVolume{named("pvc-1", "a"), named("pvc-2", "b")}
	hub := serve(t, w)
	a := &linktest.Node{Name: "a"}
	is := present(start())
	is.Warnings = []nodeapi.Warning{{
		Reason: nodeapi.WarningVolumeLost, Message: "no directory for: pvc-1, pvc-2, pvc-3",
		Volumes: []string{"pvc-1", "pvc-2", "pvc-3"}, Since: start(),
	}}
	a.Show(is)
	hub.Connect(t, a)
	const text = " Warning VolumeLost: pool local: no directory for: pvc-1, pvc-2, pvc-3"
	w.becomes(t, "a"+text, "a Normal PoolPresent: pool local: /p can be used; enforcement of sizes: strict",
		"shop/pvc-1"+text)
}

// TestANodeIsAway: after its grace nobody knows how its pools are; a node whose conditions cannot be written keeps no
// other from that.
func TestANodeIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.failing = "csi-a"
	hub := serve(t, w)
	a, b := &linktest.Node{Name: "a"}, &linktest.Node{Name: "b"}
	a.Show(present(start()))
	b.Show(present(start()))
	hub.Connect(t, a)
	stop := hub.Connect(t, b)
	w.shows(t, "csi-b", "local True PoolPresent: /p can be used; enforcement of sizes: strict")
	stop()
	waittest.Until(t, "it is away", func() bool { return hub.Get("b") == nil })
	w.set(func() { w.clock = w.clock.Add(time.Minute) })
	w.shows(t, "csi-b", "local Unknown PoolUnknown: the driver of this node is not connected to the controller")
	w.set(func() { w.clock = w.clock.Add(time.Minute) })
	hub.Connect(t, b)
	w.shows(t, "csi-b", "local True PoolPresent: /p can be used; enforcement of sizes: strict")
}

// TestAnotherWritersCondition stays on a pod, and does not make the controller write again and again.
func TestAnotherWritersCondition(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.keeps = corev1.PodCondition{Type: "pool.hostpathprovisioner.kubevirt.io/x", Status: corev1.ConditionTrue}
	hub := serve(t, w)
	a := &linktest.Node{Name: "a"}
	a.Show(present(start()))
	hub.Connect(t, a)
	const here = "local True PoolPresent: /p can be used; enforcement of sizes: strict"
	w.shows(t, "csi-a", here, "x True : ")
	time.Sleep(7 * time.Second) // some looks
	if n := w.written(); n > 2 {
		t.Errorf("%d writes", n)
	}
	gone := present(start().Add(time.Second))
	gone.State, gone.ID, gone.Reason = nodeapi.StateAbsent, "", "PathMissing"
	a.Show(gone)
	w.shows(t, "csi-a", "local False PoolAbsent: PathMissing: ", "x True : ")
}

// TestOnlyTheLeaderReports, and all of it once it leads.
func TestOnlyTheLeaderReports(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.follows = true
	hub := serve(t, w)
	a := &linktest.Node{Name: "a"}
	a.Show(present(start()))
	hub.Connect(t, a)
	time.Sleep(3 * time.Second) // one look at least
	if said := w.said(); len(said) > 0 || w.written() > 0 {
		t.Errorf("said was %q, %d conditions", said, w.written())
	}
	w.set(func() { w.follows = false })
	w.becomes(t, "a Normal PoolPresent: pool local: /p can be used; enforcement of sizes: strict")
}

// TestALyingNode can say a lot, and is heard a little.
func TestALyingNode(t *testing.T) {
	t.Parallel()
	w := newWorld()
	hub := serve(t, w)
	a := &linktest.Node{Name: "a"}
	var all []nodeapi.PoolStatus
	for i := range 100 {
		is := present(start())
		is.Name = fmt.Sprint("pool-", i)
		all = append(all, is)
	}
	a.Show(all...)
	hub.Connect(t, a)
	waittest.Until(t, "as much is said as may be", func() bool { return len(w.said()) >= 49 })
	time.Sleep(3 * time.Second)
	if n := len(w.said()); n > 50 { // its clock stands still
		t.Errorf("%d events", n)
	}
}

// TestClaimsCountToo: an outage that many volumes suffer is said bit by bit, so that the queue of events holds it.
func TestClaimsCountToo(t *testing.T) {
	t.Parallel()
	w := newWorld()
	hub := serve(t, w)
	for n := range 25 {
		is, ids := present(start()), []string{}
		name := fmt.Sprint("node-", n)
		for v := range nodeapi.MaxWarned {
			id := fmt.Sprint("pvc-", n, "-", v)
			w.set(func() {
				w.pvs = append(w.pvs, nodeapi.PersistentVolume{
					Handle: id, Nodes: []string{name}, Pool: "local", Claim: nodeapi.Claim{Namespace: "shop", Name: id},
				})
			})
			ids = append(ids, id)
		}
		is.Warnings = []nodeapi.Warning{{Reason: nodeapi.WarningVolumeLost, Volumes: ids, Since: start()}}
		node := &linktest.Node{Name: name}
		node.Show(is)
		hub.Connect(t, node)
	}
	waittest.Until(t, "as much is said as may be", func() bool { return len(w.said()) > 180 })
	time.Sleep(3 * time.Second)
	if n := len(w.said()); n > 200 { // its clock stands still
		t.Errorf("%d events at once", n)
	}
	waittest.Until(t, "all of it is said", func() bool {
		w.set(func() { w.clock = w.clock.Add(time.Second) })
		return len(w.said()) == 25*(2+nodeapi.MaxWarned)
	})
}
