package controller_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

// used is what processes use: resident memory, processor time in seconds, and bytes read.
type used struct{ rss, cpu, read float64 }

// use adds up this process's children of these names.
func use(t *testing.T, of ...string) (u used) {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		stat, err := process.Stat()
		if err != nil || stat.PPID != os.Getpid() || !slices.Contains(of, stat.Comm) { // it may have ended
			continue
		}
		io, err := process.IO()
		if err != nil {
			t.Fatal(err)
		}
		u = used{u.rss + float64(stat.ResidentMemory()), u.cpu + stat.CPUTime(), u.read + float64(io.RChar)}
	}
	return u
}

// cost is processor time of the API server, and what the provisioning processes read.
type cost struct{ seconds, cpu, bytes float64 }

// spend is what it costs to do something.
func spend(t *testing.T, do func()) cost {
	t.Helper()
	const server = "kube-apiserver"
	began, cpu, read := time.Now(), use(t, server).cpu, use(t, processes()...).read
	do()
	return cost{time.Since(began).Seconds(), use(t, server).cpu - cpu, use(t, processes()...).read - read}
}

// auditPolicy has a line written for each request of a ServiceAccount that was answered. A watch counts when it ends.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// auditFlags are the API server's that have it write the file log.
func auditFlags(t *testing.T, log string) []string {
	t.Helper()
	policy := filepath.Join(filepath.Dir(log), "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"audit-policy-file=" + policy, "audit-log-path=" + log}
}

// idleRequests counts what the ServiceAccounts' programs ask of the API server in w.idle without any work.
func (w *world) idleRequests(t *testing.T, prefix string) []report.Figure {
	t.Helper()
	before, err := os.Stat(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(w.idle)
	log, err := os.ReadFile(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	counts := countRequests(log[before.Size():])
	total := report.Figure{Name: prefix + ", idle: requests", Unit: report.PerMinute}
	var figures []report.Figure
	for what, n := range counts {
		total.Value += n / w.idle.Minutes()
		figures = append(figures, report.Figure{
			Name: prefix + ", idle: " + what, Value: n / w.idle.Minutes(), Unit: report.PerMinute,
		})
	}
	slices.SortFunc(figures, func(a, b report.Figure) int { return strings.Compare(a.Name, b.Name) })
	return append([]report.Figure{total}, figures...)
}

// countRequests counts lines of an audit log by user agent, verb and kind of object.
func countRequests(log []byte) map[string]float64 {
	counts := map[string]float64{}
	for line := range bytes.Lines(log) {
		var event struct {
			UserAgent, Verb string
			ObjectRef       struct{ Resource string }
		}
		if json.Unmarshal(line, &event) != nil { // the last one is being written
			continue
		}
		program, _, _ := strings.Cut(event.UserAgent, "/")
		counts[strings.TrimSpace(program+" "+event.Verb+" "+event.ObjectRef.Resource)]++
	}
	return counts
}
