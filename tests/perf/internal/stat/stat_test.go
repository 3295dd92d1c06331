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
		tail    string
	}{
		"none":          {nil, Summary{}, "max"},
		"one":           {upTo(1), Summary{N: 1, P50: ms, Tail: ms}, "max"},
		"two":           {upTo(2), Summary{N: 2, P50: ms, Tail: 2 * ms}, "max"},
		"ninety-nine":   {upTo(99), Summary{N: 99, P50: 50 * ms, Tail: 99 * ms}, "max"},
		"a hundred":     {upTo(100), Summary{N: 100, P50: 50 * ms, Tail: 99 * ms}, "p99"},
		"a hundred one": {upTo(101), Summary{N: 101, P50: 51 * ms, Tail: 100 * ms}, "p99"},
		"a thousand":    {upTo(1000), Summary{N: 1000, P50: 500 * ms, Tail: 990 * ms}, "p99"},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.samples)
			got := Summarize(c.samples)
			if diff := cmp.Diff(c.want, got); diff != "" || got.TailName() != c.tail {
				t.Errorf("the tail is called %s, want %s; (-want +got):\n%s", got.TailName(), c.tail, diff)
			}
			if !slices.Equal(before, c.samples) {
				t.Error("the samples were reordered")
			}
		})
	}
}

func TestPaired(t *testing.T) {
	ratio := func(of, to float64) float64 { return of / to }
	// The second one drifts, and the first with it: what each takes varies by far more than their ratio.
	median, low, high := Paired([]float64{2, 4.2, 8, 15.2, 32}, []float64{1, 2, 4, 8, 16}, ratio)
	if median != 2 || low < 1.9 || high > 2.1 || low >= high {
		t.Errorf("the ratio is %v, from %v to %v; want 2, from 1.9 to 2.1", median, low, high)
	}
	if _, again, _ := Paired([]float64{2, 4.2, 8, 15.2, 32}, []float64{1, 2, 4, 8, 16}, ratio); again != low {
		t.Errorf("the same rounds give another interval: from %v, was %v", again, low)
	}
	if median, low, high = Paired([]float64{3, 4}, []float64{2}, ratio); median != 1.5 || low != 1.5 || high != 1.5 {
		t.Errorf("one pair: %v, from %v to %v, want 1.5", median, low, high)
	}
	if median, _, _ = Paired(nil, []float64{1}, ratio); median != 0 {
		t.Errorf("no pair: %v", median)
	}
}

func TestRotated(t *testing.T) {
	for round, want := range []string{"abc", "bca", "cab", "abc"} {
		if got := string(Rotated([]byte("abc"), round)); got != want {
			t.Errorf("round %d: %s, want %s", round, got, want)
		}
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
