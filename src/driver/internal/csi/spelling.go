package csi

import (
	"fmt"
	"strings"
)

// nearest is the known word that a misspelt one most likely means, "" where none is near.
func nearest(word string, known []string) string {
	const longest = 64 // nobody misspells a word to this length
	if len(word) > longest {
		return ""
	}
	best, bestDistance := "", 1+min(3, len(word)/2)
	for _, candidate := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance is the number of bytes to insert, delete or replace to make one word of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// wrong says that a value is not what is wanted.
func wrong(value, want string) error {
	return fmt.Errorf("%.64q: want %s", value, want)
}
