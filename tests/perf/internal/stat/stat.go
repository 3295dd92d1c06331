// Package stat turns samples into the few numbers that a report shows.
package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Summary describes a set of samples. All of it is zero where there are none.
type Summary struct {
	// N is how many samples there were.
	N   int
	P50 time.Duration
	// Tail is the 99th percentile of a hundred samples or more, and the largest of fewer.
	Tail time.Duration
}

// enough samples have a 99th percentile that is not just the largest.
const enough = 100

// TailName is what Tail is.
func (s Summary) TailName() string {
	if s.N < enough {
		return "max"
	}
	return "p99"
}

// Summarize describes samples; their order does not matter and is kept.
func Summarize(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	tail := 1.0
	if len(sorted) >= enough {
		tail = 0.99
	}
	return Summary{N: len(sorted), P50: rank(sorted, 0.50), Tail: rank(sorted, tail)}
}

// rank is the nearest-rank percentile: the smallest sample that at least the fraction p of all samples do not exceed.
// It is always one that was measured, never one in between.
func rank[T any](sorted []T, p float64) T {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[max(0, i)]
}

// Median is the middle one; of an even number the lower, 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return rank(slices.Sorted(slices.Values(values)), 0.5)
}

// resamples is how often the rounds are drawn anew: the ends of the interval then move by less than they are rounded.
const resamples = 4000

// Paired compares two things that took turns, round by round: the median of what by makes of each pair, and the 95 %
// interval of that median, by drawing the rounds anew (a percentile bootstrap). Equal rounds give equal intervals.
func Paired(of, to []float64, by func(of, to float64) float64) (median, low, high float64) {
	rounds := min(len(of), len(to))
	if rounds == 0 {
		return 0, 0, 0
	}
	pairs := make([]float64, 0, rounds)
	for i, value := range of[:rounds] {
		pairs = append(pairs, by(value, to[i]))
	}
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret: the same interval for the same rounds
	medians, drawn := make([]float64, resamples), make([]float64, len(pairs))
	for i := range medians {
		for j := range drawn {
			drawn[j] = pairs[dice.IntN(len(pairs))]
		}
		medians[i] = Median(drawn)
	}
	slices.Sort(medians)
	return Median(pairs), rank(medians, 0.025), rank(medians, 0.975)
}

// Rotated is the order in which contestants take part in a round: each is first in one of as many rounds.
func Rotated[T any](all []T, round int) []T {
	if len(all) == 0 {
		return nil
	}
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// Rate is how many of n per second were done in a time; 0 where no time passed.
func Rate(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}
