package burst

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

func TestParseRequests(t *testing.T) {
	text := `# HELP apiserver_flowcontrol_dispatched_requests_total [STABLE] Number of requests executed
# TYPE apiserver_flowcontrol_dispatched_requests_total counter
apiserver_flowcontrol_dispatched_requests_total{flow_schema="perf-ours-events",priority_level="workload-low"} 240
apiserver_flowcontrol_dispatched_requests_total{flow_schema="perf-ours-other",priority_level="workload-low"} 1.2e+01
apiserver_flowcontrol_dispatched_requests_total{flow_schema="perf-ours-other",priority_level="workload-high"} 3
apiserver_flowcontrol_dispatched_requests_total{flow_schema="perf-local-path-pods",priority_level="workload-low"} 99
apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts",priority_level="workload-low"} 7
apiserver_flowcontrol_rejected_requests_total{flow_schema="perf-ours-events",priority_level="workload-low"} 5
`
	got, err := parseRequests([]byte(text), "perf-ours-")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Requests{"events": 240, "other": 15}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Total() != 255 {
		t.Errorf("total %v, want 255", got.Total())
	}
	if diff := cmp.Diff(Requests{"events": 40, "other": 15}, got.since(Requests{"events": 200})); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
}

func TestParseStatus(t *testing.T) {
	text := "Name:\tdriver\nVmRSS:\t   20480 kB\nName:\tkthreadd\nName:\tcsi-provisioner\nVmRSS:\t   61440 kB\n" +
		"Name:\tdriver\nVmRSS:\t    1024 kB\nName:\tkubelet\nVmRSS:\t  99999 kB\n"
	got, err := parseStatus(text, []string{"driver", "csi-provisioner"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"driver": 21504 << 10, "csi-provisioner": 61440 << 10}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := parseStatus("Name:\tdriver\nVmRSS:\tmuch\n", []string{"driver"}); err == nil {
		t.Error("a number that is none was accepted")
	}
}

func TestMemoryIsOfTheFullestNode(t *testing.T) {
	m := Memory{"a": {"driver": 10, "csi-provisioner": 60}, "b": {"driver": 20}}
	if got := m.MostOf("driver"); got != 20 {
		t.Errorf("got %d, want 20", got)
	}
}

func TestMoments(t *testing.T) {
	start := time.Now()
	created := moments{at: map[string]time.Time{"a": start, "b": start.Add(time.Second)}}
	bound := moments{
		at: map[string]time.Time{"b": start.Add(4 * time.Second), "a": start.Add(5 * time.Second), "stranger": start},
	}
	if diff := cmp.Diff([]time.Duration{3 * time.Second, 5 * time.Second}, bound.after(&created)); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{0, 4 * time.Second, 5 * time.Second}, bound.since(start)); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
	bound.note("a")
	if got := bound.at["a"]; !got.Equal(start.Add(5 * time.Second)) {
		t.Error("a second time replaced the first")
	}
}

func TestParseCPU(t *testing.T) {
	text := `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="driver",namespace="ours",pod="csi-1"} 4.5 1763935000000
container_cpu_usage_seconds_total{container="driver",namespace="ours",pod="csi-2"} 1.5 1763935000000
container_cpu_usage_seconds_total{container="kube-apiserver",namespace="kube-system",pod="api"} 90 1763935000000
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 120.25 1763935000000
`
	got, err := parseCPU([]byte(text), "a")
	if err != nil {
		t.Fatal(err)
	}
	grown := got.since(CPU{{Node: "a", Namespace: "ours", Pod: "csi-1", Container: "driver"}: 2, {Node: "a"}: 20})
	for name, c := range map[string]struct{ got, want float64 }{
		"a namespace":  {grown.of("ours", ""), 4},
		"a container":  {grown.of("ours", "driver"), 4},
		"of another":   {grown.of("ours", "kube-apiserver"), 0},
		"unseen until": {grown.of("kube-system", "kube-apiserver"), 90},
		"the node":     {grown.of("", ""), 100.25},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v s, want %v", name, c.got, c.want)
		}
	}
	_, err = parseCPU([]byte("# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 1\n"), "a")
	if err == nil {
		t.Error("a kubelet that does not know its containers was accepted")
	}
}

// outcome has two rounds of n claims, the last one bound after the time given.
func outcome(name string, n int, lastBound time.Duration) Outcome {
	r := Round{
		Requests: Requests{"events": 120, other: 60},
		CPU: CPU{
			{Node: "a", Namespace: name, Container: "driver"}:                  lastBound.Seconds(),
			{Node: "a", Namespace: "kube-system", Container: "kube-apiserver"}: lastBound.Seconds(),
			{Node: "a"}: 100,
		},
		Memory: Memory{"worker": {"driver": 50 << 20, "csi-provisioner": 60 << 20}, "worker2": {"driver": 20 << 20}},
	}
	for i := range n {
		d := lastBound * time.Duration(i+1) / time.Duration(n)
		r.Bound, r.Running, r.Gone = append(r.Bound, d), append(r.Running, 2*d), append(r.Gone, d)
		r.ToBound, r.ToRunning = append(r.ToBound, d), append(r.ToRunning, 2*d)
	}
	return Outcome{
		System: System{
			Name: name, Namespace: name, Processes: []string{"driver", "csi-provisioner"}, OnNodes: "driver",
			Central: "csi-provisioner",
		},
		Rounds: []Round{r, r},
	}
}

func figures(sections ...report.Section) map[string]report.Figure {
	all := map[string]report.Figure{}
	for _, s := range sections {
		for _, f := range s.Figures {
			all[f.Name] = f
		}
	}
	return all
}

func TestAgainst(t *testing.T) {
	ours, peer := outcome("ours", 60, 12*time.Second), outcome(LocalPath, 60, 120*time.Second)
	most := outcome(Ceiling, 60, 10*time.Second)
	got := figures(ours.Section(), Against(ours, []Outcome{peer, most}))
	for name, want := range map[string]float64{
		"ours: Bound per second":                                                5,
		"ours: all Running":                                                     24,
		"ours: API requests per volume life":                                    3,
		"ours: API requests per volume life, events":                            2,
		"Bound per second, ours / local-path":                                   10,
		"all Running, ours / local-path":                                        0.1,
		"RSS of our container on a node":                                        50,
		"ours: claim→Running p99":                                               24,
		"ours: CPU per claim, all on the nodes":                                 100_000. / 60,
		"ours: CPU per claim, ours/driver":                                      200,
		"CPU of the system's pods and the API server per claim, ours / ceiling": 1.2,
		"API requests per volume life, ours / ceiling":                          1,
	} {
		f, ok := got[name]
		if !ok {
			t.Errorf("no figure %q", name)
		}
		if diff := f.Value - want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s: %v, want %v", name, f.Value, want)
		}
	}
	if f := got["Bound per second, ours / local-path"]; f.Verdict() != report.Met {
		t.Errorf("ten times as fast as local-path: %s, budget %v", f.Verdict(), f.Budget)
	}
	if lines := ours.Bench(); len(lines) != 2 || lines[0].Values["cpu-s/claim"] != 0.4 {
		t.Errorf("for benchstat: %v", lines)
	}
}
