// Package controller_test measures the controller: a real API server without nodes, the chart's controller pod
// as processes of this machine, and nodes that one process plays with the real end of the tunnel. Beside it, it
// measures a csi-provisioner per node. It is a test because what starts the API server is one; no figure makes it fail.
package controller_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/app"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/machine"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

// variable has the flags; without it nothing is measured.
const variable = "HPP_PERF_CONTROLLER"

// few is how many nodes a small cluster has.
const few = 3

type options struct {
	nodes, volumes, provisioners, claims, calls int
	idle                                        time.Duration
	out                                         string
}

func parse(t *testing.T, args []string) (o options) {
	t.Helper()
	set := flag.NewFlagSet(variable, flag.ContinueOnError)
	set.IntVar(&o.nodes, "nodes", 500, "simulated nodes")
	set.IntVar(&o.volumes, "volumes", 10000, "bound volumes, spread over the nodes")
	set.IntVar(&o.provisioners, "provisioners", 30, "nodes of the comparison with a csi-provisioner per node")
	set.IntVar(&o.claims, "claims", 120, "claims of its burst")
	set.IntVar(&o.calls, "calls", 2000, "calls of CreateVolume on each way")
	set.DurationVar(&o.idle, "idle", 2*time.Minute, "how long to watch idle processes, after half as long to settle")
	set.StringVar(&o.out, "out", "", "folder for the report")
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	o.provisioners = min(o.provisioners, o.nodes)
	if o.provisioners < few || o.volumes < o.nodes || min(o.claims, o.calls) < 1 || o.out == "" {
		t.Fatalf("%+v: want at least %d nodes and provisioners, as many volumes as nodes, and -out", o, few)
	}
	return o
}

func TestController(t *testing.T) {
	flags, ok := os.LookupEnv(variable)
	if !ok {
		t.Skipf("%s is not set: `make perf-controller` measures", variable)
	}
	o := parse(t, strings.Fields(flags))
	r := report.Report{Started: time.Now().UTC().Truncate(time.Second)}
	var err error
	if r.Machine, err = machine.Describe(t.Context(), helmcli.Root(t)); err != nil {
		t.Fatal(err)
	}
	const quiet = 0.3 // cores, as in `make perf`
	note, err := machine.Quiet(t.Context(), "all of it", quiet)
	if err != nil {
		t.Fatal(err)
	}
	w := install(t, o)
	for _, phase := range []struct {
		name string
		run  func(*testing.T, *world)
	}{{"few", small}, {"beside", compare}, {"many", large}} {
		if !t.Run(phase.name, func(t *testing.T) { phase.run(t, w) }) {
			t.FailNow() // those that follow build on it
		}
	}
	if r.Machine.LoadAfter, err = machine.Load(); err != nil {
		t.Fatal(err)
	}
	r.Sections = w.sections
	r.Notes = []string{
		"A simulated node is the real end of the tunnel with a ServiceAccount's token that is bound to a pod on that " +
			"node; its volumes are in memory. It has no watch; a real one has one, of its own Node object.",
		"The processes have the chart's arguments, accounts and rights. Those per node have the arguments of the " +
			"chart's last version without controller. All of it, the API server and etcd share this machine's cores.",
		"RSS is read in /proc, half of -idle after the start. Idle requests are counted in the API server's audit " +
			"log, in -idle after that; a watch counts when it ends. After each burst every claim had one volume, on " +
			"its node and no other; during the last one the controller was killed. Watches are " +
			"apiserver_longrunning_requests less what it was before. Processor time is the kube-apiserver's in " +
			"/proc. Bytes are what the provisioning processes read (rchar in /proc): nearly all of it comes from the " +
			"API server, and of the controller's some through the tunnel.",
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	dir := filepath.Join(o.out, r.Started.Format("20060102T150405Z"))
	if err := app.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s\nWritten to %s", r.Markdown(), dir)
}

// processes are the names of those that provision.
func processes() []string { return []string{"controller", "csi-provisioner", "csi-resizer"} }

func seconds(name string, value float64) report.Figure {
	return report.Figure{Name: name, Value: value, Unit: report.Seconds}
}

// resident are the figures of memory and watches, after everything has settled.
func (w *world) resident(t *testing.T, before float64, budget float64) (watches float64, figures []report.Figure) {
	t.Helper()
	time.Sleep(w.idle / 2)
	prefix := fmt.Sprintf("%d nodes: ", len(w.pods))
	for _, name := range processes() {
		limits := w.containers[name].Resources.Limits
		limit := report.AtMost(limits.Memory().AsApproximateFloat64() / (1 << 20))
		figures = append(figures, report.Memory(prefix+"RSS of "+name, int64(use(t, name).rss), limit))
	}
	watches = w.watches(t) - before
	return watches, append(figures,
		report.Memory(prefix+"RSS of the three processes of the controller's pod", int64(use(t, processes()...).rss),
			report.AtMost(budget)),
		report.Figure{Name: prefix + "watches of the three at the API server", Value: watches})
}

// small is the controller with a few nodes and no volumes.
func small(t *testing.T, w *world) {
	w.addNodes(t, few)
	before := w.watches(t)
	w.start(t).control(t, 0)
	s := report.Section{Title: "The controller with few nodes"}
	w.few, s.Figures = w.resident(t, before, 250)
	w.sections = append(w.sections, s)
}

func phases() []string { return []string{"start", "idle", "burst"} }

// compare measures two layouts one after the other.
func compare(t *testing.T, w *world) {
	w.addNodes(t, w.provisioners)
	w.addVolumes(t)
	s := report.Section{
		Title: fmt.Sprintf("The API server with %d nodes: one controller beside a csi-provisioner per node",
			len(w.pods)),
		About: fmt.Sprintf("There are %d volumes. Start: from the first process until the capacity of all nodes is "+
			"published. Idle: %s, begun half as long after that. Burst: %d claims that name their node, created by 16 "+
			"clients, until all are Bound.",
			w.made, w.idle, w.claims),
	}
	costs := map[string][]cost{}
	one, many := "one controller", "csi-provisioner per node"
	for _, name := range []string{one, many} {
		t.Run(name, func(t *testing.T) {
			before := w.watches(t)
			l := w.start(t)
			begin := func() { l.control(t, w.volumes/w.nodes) }
			if name == many {
				begin = func() { l.beside(t) }
			}
			idle := func() { s.Figures = append(s.Figures, w.idleRequests(t, name)...) }
			for i, do := range []func(){begin, idle, func() { l.burst(t, strings.Fields(name)[0], nil) }} {
				if i == 1 { // begin has started everything
					time.Sleep(w.idle / 2)
				}
				c := spend(t, do)
				costs[name] = append(costs[name], c)
				what := name + ", " + phases()[i] + ": "
				s.Figures = append(s.Figures,
					seconds(what+"time", c.seconds), seconds(what+"processor time of the API server", c.cpu),
					report.Figure{Name: what + "bytes read", Value: c.bytes / (1 << 20), Unit: report.MiB})
			}
			watches := w.watches(t) - before
			s.Figures = append(s.Figures, report.Figure{Name: name + ": watches at the API server", Value: watches})
			if err := l.running(t); err != nil {
				t.Error(err)
			}
		})
	}
	if t.Failed() {
		return
	}
	for i, phase := range phases() {
		s.Figures = append(s.Figures,
			report.Quotient("processor time of the API server, "+phase+", one controller / per node",
				[]float64{costs[one][i].cpu}, []float64{costs[many][i].cpu}, nil),
			report.Quotient("bytes read, "+phase+", one controller / per node",
				[]float64{costs[one][i].bytes}, []float64{costs[many][i].bytes}, nil))
	}
	w.sections = append(w.sections, s)
}

// large is the controller with all nodes and volumes.
func large(t *testing.T, w *world) {
	w.addNodes(t, w.nodes)
	w.addVolumes(t)
	before := w.watches(t)
	l := w.start(t)
	took := l.control(t, w.volumes/w.nodes)
	s := report.Section{Title: "The controller with many nodes", About: fmt.Sprintf("%d volumes, each with its claim. "+
		"Connected: from the start of the nodes until the controller's metrics count all. The hop: CreateVolume for "+
		"one node through the controller's socket, in turn with the same call at that node's own socket.", w.made)}
	watches, figures := w.resident(t, before, 600)
	s.Figures = append(append(s.Figures, seconds("all connected", took.Seconds())), figures...)
	s.Figures = append(s.Figures, report.Quotient(
		fmt.Sprintf("watches, %d nodes / %d nodes", w.nodes, few), []float64{watches}, []float64{w.few},
		report.AtMost(1)))
	s.Figures = append(s.Figures, w.idleRequests(t, fmt.Sprintf("%d nodes", w.nodes))...)
	s.Figures = append(s.Figures, w.hop(t, l)...)
	began := time.Now()
	l.kill(t)
	l.join(t)
	again := time.Since(began)
	began = time.Now()
	l.burst(t, "many", func() { l.kill(t) })
	l.join(t)
	s.Figures = append(s.Figures,
		report.Figure{
			Name: "all connected again, from kill -9 and start", Value: again.Seconds(), Unit: report.Seconds,
			Budget: report.AtMost(10),
		},
		seconds(fmt.Sprintf("%d claims bound, the controller killed halfway", w.claims), time.Since(began).Seconds()))
	w.sections = append(w.sections, s)
}

func dial(t *testing.T, socket string) csi.ControllerClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return csi.NewControllerClient(conn)
}

// hop measures CreateVolume with one client and with 16.
func (w *world) hop(t *testing.T, l *layout) (figures []report.Figure) {
	t.Helper()
	through, direct := dial(t, l.path("csi.sock")), dial(t, l.path("sockets", w.pods[0].Name+".sock"))
	create := func(to csi.ControllerClient, name string, node int) (time.Duration, error) {
		here := []*csi.Topology{{Segments: map[string]string{topologyKey: w.pods[node].Name}}}
		began := time.Now()
		_, err := to.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}},
			AccessibilityRequirements: &csi.TopologyRequirement{Requisite: here, Preferred: here},
		})
		return time.Since(began), err
	}
	var times [2][]time.Duration
	for i := range 2 * w.calls {
		took, err := create([]csi.ControllerClient{through, direct}[i%2], "one-"+strconv.Itoa(i), 0)
		if err != nil {
			t.Fatal(err)
		}
		times[i%2] = append(times[i%2], took)
	}
	ms := func(name string, d time.Duration, budget *report.Budget) {
		figures = append(figures, report.Figure{
			Name: "CreateVolume " + name, Value: report.Ms(d), Unit: report.Milliseconds, Samples: w.calls,
			Budget: budget,
		})
	}
	is, was := stat.Summarize(times[0]), stat.Summarize(times[1])
	ms("through the controller p50", is.P50, nil)
	ms("through the controller "+is.TailName(), is.Tail, nil)
	ms("at the node p50", was.P50, nil)
	ms("at the node "+was.TailName(), was.Tail, nil)
	ms("p50, the hop (difference)", is.P50-was.P50, report.AtMost(2))
	var next atomic.Int64
	began := time.Now()
	each(t, 0, 16, func(int) error {
		for i := int(next.Add(1)); i <= 4*w.calls; i = int(next.Add(1)) {
			if _, err := create(through, "many-"+strconv.Itoa(i), i%len(w.pods)); err != nil {
				return err
			}
		}
		return nil
	})
	return append(figures, report.Figure{
		Name:  "CreateVolume through the controller, 16 clients, all nodes in turn",
		Value: stat.Rate(4*w.calls, time.Since(began)), Unit: report.PerSecond, Samples: 4 * w.calls,
	})
}
