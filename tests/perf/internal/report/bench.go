package report

import (
	"fmt"
	"strings"
)

// BenchLine is one line as `go test -bench` writes it, for benchstat. Lines of one name are repeated measurements.
type BenchLine struct {
	// Name is the benchmark's, with key=value parts: CreateVolume/fs=host/volumes=100.
	Name string `json:"name"`
	// N is the number of operations measured.
	N int `json:"n"`
	// NsPerOp is the mean time of an operation in nanoseconds.
	NsPerOp float64 `json:"nsPerOp"`
	// P50 and P99 in nanoseconds, 0 where not meaningful.
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
}

// BenchText is all lines with the header that benchstat groups by.
func (r Report) BenchText() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"goos: %s\ngoarch: %s\npkg: github.com/hostpath-provisioner/hostpath-provisioner/tests/perf\ncpu: %s\n",
		r.Machine.OS, r.Machine.Arch, r.Machine.CPU)
	for _, l := range r.Bench {
		// The number of processors at the end of a name is what go test writes; benchstat takes it off.
		fmt.Fprintf(&b, "Benchmark%s-%d\t%8d\t%12.0f ns/op", l.Name, r.Machine.Cores, l.N, l.NsPerOp)
		if l.P50 > 0 {
			fmt.Fprintf(&b, "\t%12.0f p50-ns\t%12.0f p99-ns", l.P50, l.P99)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
