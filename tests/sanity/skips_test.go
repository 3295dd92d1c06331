package sanity_test

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

//go:embed testdata/skips.txt
var skipsText string

//go:embed testdata/skips-without-snapshots.txt
var copiesText string

// skips are the specs that csi-sanity skips on a filesystem, in order.
func skips(filesystem string) []string {
	lines := specs(skipsText)
	if !hasSnapshots(filesystem) {
		lines = append(lines, specs(copiesText)...)
	}
	slices.Sort(lines)
	return lines
}

// specs are those that a text lists.
func specs(text string) []string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// hasSnapshots reports whether pools on a filesystem make snapshots.
func hasSnapshots(filesystem string) bool { return !shared(filesystem) }

// withoutCopies are patterns of the specs that are to be skipped on a filesystem without snapshots.
func withoutCopies(filesystem string) (patterns []string) {
	if hasSnapshots(filesystem) {
		return nil
	}
	for _, spec := range specs(copiesText) {
		patterns = append(patterns, "^csi-sanity "+regexp.QuoteMeta(filesystem+" "+spec)+"$")
	}
	return patterns
}
