package sanity_test

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed testdata/skips.txt
var skipsText string

// skips are the specs that csi-sanity skips, in order.
func skips() []string {
	lines := strings.FieldsFunc(skipsText, func(r rune) bool { return r == '\n' })
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
	slices.Sort(lines)
	return lines
}
