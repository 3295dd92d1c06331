package repair_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/repair"
)

const (
	goesOn = `[{"id": "w1", "verb": "enforce", "node": "worker-1", "files": 5, "done": 0}]`
	half   = `[{"id": "w1", "verb": "enforce", "node": "worker-1", "files": 9, "done": 1}]`
	done   = `[{"id": "w1", "verb": "enforce", "node": "worker-1", "files": 9, "done": 2,
		"ended": "2026-11-22T12:00:00Z"}]`
)

// TestEnforce: the work is begun on the node of the claim, and waited for.
func TestEnforce(t *testing.T) {
	p := &plugin{answers: map[string][]string{
		"volume list": {listed},
		"volume enforce --background --node worker-1 pvc-1":            {`{"work": "w1"}`},
		"volume enforce --background --inodes=9 --node worker-2 pvc-3": {"refused: node worker-2: it has 10"},
		"volume enforce --background --node worker-2 --pool nvme0":     {`{"work": "w1", "running": true}`},
		"work w1": {goesOn, goesOn, half, "", done},
	}}
	_, problems, err := p.run(t.Context(), "enforce data")
	want := "enforce on worker-1: 0 volumes done\nenforce on worker-1: 1 volumes done\n" +
		"enforce on worker-1: 2 volumes done\n"
	if diff := cmp.Diff(want, problems); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	p.must(t, "enforce --pool nvme0 --node worker-2", "")
	p.fails(t, "enforce other --inodes 9", remote.ErrRefused, "node worker-2: it has 10")
	p.answers["volume enforce --background --inodes=9 --node worker-1 pvc-1"] = []string{"refused: node worker-1: away"}
	p.answers["volume enforce --background --inodes=9 --node worker-2 pvc-3"] = []string{`{"work": "w1"}`}
	_, problems, err = p.run(t.Context(), "enforce data other --inodes 9") // one node keeps no other from it
	if !errors.Is(err, remote.ErrRefused) || !strings.Contains(err.Error(), "node worker-1: away") ||
		!strings.Contains(problems, "2 volumes done") {
		t.Errorf("%v; said %s", err, problems)
	}
	for _, line := range []string{
		"enforce", "enforce --pool nvme0", "enforce --node worker-1", "enforce data --pool local",
		"enforce --pool a --node b --inodes 5",
	} {
		p.fails(t, line, errUsage)
	}
	p.answers["work w1"] = []string{`[{"id": "w1", "verb": "enforce", "node": "worker-1", "done": 1, "failed": 21,
		"errors": ["pvc-1: it is used"], "error": "node worker-1: gone", "ended": "2026-11-22T12:00:00Z"}]`}
	p.fails(t, "work w1", repair.ErrFailed, "1 volumes done, 21 failed", "pvc-1: it is used", "and 20 more",
		"node worker-1: gone; what was done stays, so run the command again")
	p.answers["work w1"] = []string{"refused: no such work"}
	p.fails(t, "work w1", remote.ErrRefused, "no such work")
	p.answers["work w1"] = []string{""}
	p.fails(t, "work w1", repair.ErrGoesOn, "kubectl hpp work w1", "kubectl hpp work cancel w1")
}

// TestInterrupted: the work goes on, and how to look at it is said.
func TestInterrupted(t *testing.T) {
	p := &plugin{answers: map[string][]string{"work w1": {goesOn}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := p.run(ctx, "work w1")
	if !errors.Is(err, repair.ErrGoesOn) || !strings.Contains(err.Error(), "kubectl hpp work w1") {
		t.Errorf("got %v", err)
	}
}

// TestMeasure writes a line for each volume, with its claim.
func TestMeasure(t *testing.T) {
	const measured = `[{"id": "w2", "verb": "measure", "node": "worker-2", "done": 2, "ended": "2026-11-22T12:00:00Z",
		"volumes": [{"id": "pvc-2", "files": 7, "bytes": 4096, "done": true},
		{"id": "pvc-3", "files": 1, "bytes": 1, "error": "gone"}], "failed": 1, "errors": ["pvc-3: gone"]}]`
	p := &plugin{answers: map[string][]string{
		"volume list": {listed}, "volume measure --node worker-2": {`{"work": "w2"}`}, "work w2": {measured},
		"volume measure --node worker-1 --pool local": {`{"work": "w1"}`},
		"volume measure --node worker-2 --pool local": {"refused: node worker-2 is not connected"},
		"volume measure --node worker-1 pvc-1":        {`{"work": "w1"}`},
		"work w1": {`[{"id": "w1", "verb": "measure", "node": "worker-1", "done": 1, "ended": "2026-11-22T12:00:00Z",
			"volumes": [{"id": "pvc-1", "files": 3, "bytes": 3221225472, "done": true}]}]`},
	}}
	got, _, err := p.run(t.Context(), "measure --node worker-2")
	want := `CLAIM       NODE      POOL   SIZE  MEASURED  FILES
shop/data   worker-2  local  5     4Ki       7
shop/other  worker-2  nvme0  2Ki   -         -
`
	if diff := cmp.Diff(want, got); !errors.Is(err, repair.ErrFailed) || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	const one = `CLAIM      NODE      POOL   SIZE  MEASURED  FILES
shop/data  worker-1  local  1Gi   3Gi       3
`
	p.must(t, "measure data", one)
	got, _, err = p.run(t.Context(), "measure --pool local") // the node that can is measured
	if diff := cmp.Diff(one, got); !errors.Is(err, remote.ErrRefused) || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	p.fails(t, "measure", errUsage)
	p.fails(t, "measure data --node worker-1", errUsage)
	p.fails(t, "measure --pool no", repair.ErrNotFound)
}

func TestWork(t *testing.T) {
	p := &plugin{answers: map[string][]string{
		"work cancel w1": {`{"message": "work w1 is cancelled"}`},
		"work": {`[{"id": "w2", "verb": "measure", "node": "worker-2", "what": "all on the node", "files": 9, "done": 2,
			"started": "2026-11-22T12:00:00Z", "ended": "2026-11-22T12:01:00Z"},
			{"id": "w1", "verb": "enforce", "node": "worker-1", "what": "pvc-1", "failed": 1,
			"started": "2026-11-22T11:00:00Z", "ended": "2026-11-22T12:00:00Z", "error": "node worker-1: gone"}]`},
	}}
	p.must(
		t,
		"work",
		`ID  VERB     NODE      WHAT             TOOK  STATE                             DONE  FAILED  FILES
w2  measure  worker-2  all on the node  60s   done                              2     0       9
w1  enforce  worker-1  pvc-1            60m   ended early: node worker-1: gone  0     1       0
`,
	)
	p.must(t, "work cancel w1", "work w1 is cancelled\n")
	p.fails(t, "work a b", errUsage)
}
