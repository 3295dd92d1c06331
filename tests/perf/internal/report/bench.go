package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// BenchLine is one round as `go test -bench` would write it, for benchstat: lines of one name are repeated
// measurements.
type BenchLine struct {
	// Name is the benchmark's, with key=value parts: CreateVolume/fs=host/volumes=100.
	Name string
	// N is the number of operations measured.
	N int
	// Values are what they gave, by unit.
	Values map[string]float64
}

// BenchText is all lines with the header that benchstat groups by.
func (r Report) BenchText() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"goos: %s\ngoarch: %s\npkg: github.com/hostpath-provisioner/hostpath-provisioner/tests/perf\ncpu: %s\n",
		r.Machine.OS, r.Machine.Arch, r.Machine.CPU)
	for _, l := range r.Bench {
		// The number of processors at the end of a name is what go test writes; benchstat takes it off.
		fmt.Fprintf(&b, "Benchmark%s-%d\t%8d", l.Name, r.Machine.Cores, l.N)
		for _, unit := range slices.Sorted(maps.Keys(l.Values)) {
			fmt.Fprintf(&b, "\t%12.6g %s", l.Values[unit], unit)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
