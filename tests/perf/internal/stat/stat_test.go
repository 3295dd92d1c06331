package stat

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// upTo gives 1 ms, 2 ms … n ms, the largest first: order must not matter.
func upTo(n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration(n-i) * time.Millisecond
	}
	return all
}

func TestSummarize(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		samples []time.Duration
		want    Summary
	}{
		"none": {nil, Summary{}},
		"one":  {upTo(1), Summary{N: 1, P50: ms, P99: ms, Mean: ms}},
		"two":  {upTo(2), Summary{N: 2, P50: ms, P99: 2 * ms, Mean: 1500 * time.Microsecond}},
		"a hundred": {
			upTo(100), Summary{N: 100, P50: 50 * ms, P99: 99 * ms, Mean: 50500 * time.Microsecond},
		},
		"a hundred one": {upTo(101), Summary{N: 101, P50: 51 * ms, P99: 100 * ms, Mean: 51 * ms}},
		"a thousand": {
			upTo(1000), Summary{N: 1000, P50: 500 * ms, P99: 990 * ms, Mean: 500500 * time.Microsecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.samples)
			if diff := cmp.Diff(c.want, Summarize(c.samples)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.Equal(before, c.samples) {
				t.Error("the samples were reordered")
			}
		})
	}
}

func TestRate(t *testing.T) {
	if got := Rate(60, 15*time.Second); got != 4 {
		t.Errorf("60 in 15 s: %v, want 4", got)
	}
	if got := Rate(60, 0); got != 0 {
		t.Errorf("60 in no time: %v, want 0", got)
	}
}
