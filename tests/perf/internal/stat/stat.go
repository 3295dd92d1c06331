// Package stat turns samples into the few numbers that a report shows.
package stat

import (
	"math"
	"slices"
	"time"
)

// Summary describes a set of samples. All of it is zero where there are none.
type Summary struct {
	// N is how many samples there were.
	N              int
	P50, P99, Mean time.Duration
}

// Summarize describes samples; their order does not matter and is kept.
func Summarize(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	var sum time.Duration
	for _, d := range sorted {
		sum += d
	}
	return Summary{
		N: len(sorted), P50: rank(sorted, 0.50), P99: rank(sorted, 0.99), Mean: sum / time.Duration(len(sorted)),
	}
}

// rank is the nearest-rank percentile: the smallest sample that at least the fraction p of all samples do not exceed.
// It is always a time that was measured, never one in between; with few samples p99 is the largest.
func rank(sorted []time.Duration, p float64) time.Duration {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[max(0, i)]
}

// Rate is how many of n per second were done in a time; 0 where no time passed.
func Rate(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}
