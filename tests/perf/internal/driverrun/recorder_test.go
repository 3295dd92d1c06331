package driverrun

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workdisk"
)

// filled is a recorder in which the large pool takes 1.5 times as long as the small one.
func filled(disk workdisk.Disk) *recorder {
	r := newRecorder(disk)
	for range 2 { // rounds
		r.add(opByHand, baseline, slices.Repeat([]time.Duration{time.Millisecond}, 10))
		r.add(opCreate, 100, slices.Repeat([]time.Duration{2 * time.Millisecond}, 10))
		r.add(opCreate, 100000, slices.Repeat([]time.Duration{3 * time.Millisecond}, 50))
	}
	r.add(fmt.Sprintf(opFull, 10), 100, slices.Repeat([]time.Duration{40 * time.Millisecond}, 99))
	r.addParallel(100, slices.Repeat([]time.Duration{20 * time.Millisecond}, 480), time.Second)
	r.addParallel(100, slices.Repeat([]time.Duration{20 * time.Millisecond}, 480), 2*time.Second)
	r.add(opRecover, 100000, []time.Duration{1500 * time.Millisecond})
	return r
}

func TestSection(t *testing.T) {
	r := filled(workdisk.Disk{Name: "host", FSType: "ext4"})
	got := map[string]report.Figure{}
	for _, f := range r.section().Figures {
		if _, twice := got[f.Name]; twice {
			t.Errorf("two figures are called %q", f.Name)
		}
		got[f.Name] = f
	}
	for name, want := range map[string]struct {
		value  float64
		budget string
		met    bool
	}{
		"host, by hand: same steps by hand p50":               {1, "", true},
		"host, 100 volumes: CreateVolume p50":                 {2, "", true},
		"host, 100000 volumes: CreateVolume p50":              {3, "", true},
		"host, 100000 volumes: CreateVolume p99":              {3, "≤ 10", true},
		"host, 100 volumes: DeleteVolume, 10 files max":       {40, "", true},
		"host, 100 volumes: CreateVolume, 16 clients rate":    {240, "≥ 500", false},
		"host: CreateVolume p50, 100000 / 100 volumes":        {1.5, "≤ 1.2", false},
		"host: CreateVolume p50, over the same steps by hand": {1, "≤ 0.4", false},
		"host, 100000 volumes: start and recovery time":       {1.5, "≤ 2", true},
		"host: NodePublishVolume p50, 100000 / 100 volumes":   {0, "≤ 1.2", false},
		"host, 100 volumes: CreateVolume, 16 clients p99":     {20, "", true},
	} {
		f, ok := got[name]
		if !ok {
			t.Errorf("no figure %q", name)
			continue
		}
		if f.Value != want.value {
			t.Errorf("%s: %v, want %v", name, f.Value, want.value)
		}
		if f.Budget == nil {
			if want.budget != "" {
				t.Errorf("%s has no budget, want %s", name, want.budget)
			}
			continue
		}
		if f.Budget.String() != want.budget || (f.Verdict() == report.Met) != want.met {
			t.Errorf("%s: budget %q, %s, want %q, met %t", name, f.Budget, f.Verdict(), want.budget, want.met)
		}
	}
}

func TestBenchNames(t *testing.T) {
	r := filled(workdisk.Disk{Name: "host"})
	if n := len(r.bench); n != 10 {
		t.Errorf("%d lines, want one for each round: 10", n)
	}
	for op, want := range map[string]string{
		opCreate:   "CreateVolume/fs=host/volumes=100",
		opParallel: "CreateVolume_16_clients/fs=host/volumes=100",
		opMkdir:    "mkdirfsync/fs=host/volumes=100",
	} {
		if got := r.benchName(key{op, 100}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRawLeavesWhatTheDriverWould(t *testing.T) {
	r, err := newRaw(t.TempDir(), baseline, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for range 3 {
		for _, b := range r.baselines() {
			if err := b.do(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.trash(); err != nil {
		t.Fatal(err)
	}
	if len(r.made) != 2 {
		t.Errorf("%v are left, want two", r.made)
	}
}
