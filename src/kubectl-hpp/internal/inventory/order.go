package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Filter chooses rows; what is empty chooses all.
type Filter struct {
	Namespace, Node, Pool, Class string
	States                       []string
}

// Check refuses a state that there is none.
func (f Filter) Check() error {
	for _, state := range f.States {
		if !slices.Contains(facts.States(), state) {
			return fmt.Errorf("--state: %q: want %s", state, strings.Join(facts.States(), ", "))
		}
	}
	return nil
}

func means(wanted, is string) bool { return wanted == "" || wanted == is }

// Volume reports whether one is chosen.
func (f Filter) Volume(v Volume) bool {
	return means(f.Namespace, v.Namespace) && means(f.Pool, v.Pool) && means(f.Class, v.Class) &&
		(f.Node == "" || slices.Contains(strings.Split(v.Node, ","), f.Node)) &&
		(len(f.States) == 0 || slices.Contains(f.States, v.State))
}

// Place reports whether a pool on a node is chosen.
func (f Filter) Place(node, pool string) bool { return means(f.Node, node) && means(f.Pool, pool) }

// Deleted reports whether one is chosen.
func (f Filter) Deleted(d Deleted) bool {
	namespace, _, _ := strings.Cut(d.Claim, "/")
	return means(f.Namespace, namespace) && f.Place(d.Node, d.Pool)
}

// Orders are the values of --sort, each of which may have a "-" before it.
func Orders() []string { return []string{"claim", "size", "used", "use", "age", "node", "pool"} }

// Sort orders volumes: names from a to z, numbers from the largest, ages from the oldest, and the other way round where
// by begins with "-". What is not known comes last.
func Sort(all []Volume, by string) error {
	key, reversed := strings.CutPrefix(by, "-")
	if !slices.Contains(Orders(), key) {
		return fmt.Errorf("--sort: %q: want %s, or one of them with - before it", by, strings.Join(Orders(), ", "))
	}
	slices.SortStableFunc(all, func(a, b Volume) int {
		return cmp.Or(
			compare(key, a, b, reversed),
			strings.Compare(a.Namespace, b.Namespace), lastIfEmpty(a.Claim, b.Claim, false),
			strings.Compare(a.ID, b.ID),
		)
	})
	return nil
}

func compare(key string, a, b Volume, reversed bool) int {
	switch key {
	case "size":
		return largestFirst(a.Size, b.Size, reversed)
	case "used":
		return largestFirst(a.Used, b.Used, reversed)
	case "use":
		return largestFirst(a.Percent, b.Percent, reversed)
	case "age":
		return largestFirst(a.age(), b.age(), reversed)
	case "node":
		return lastIfEmpty(a.Node, b.Node, reversed)
	case "pool":
		return lastIfEmpty(a.Pool, b.Pool, reversed)
	}
	return cmp.Or(lastIfEmpty(a.Namespace, b.Namespace, reversed), lastIfEmpty(a.Claim, b.Claim, reversed))
}

// age is larger the older a volume is, nil where that is not known.
func (v *Volume) age() *int64 {
	if v.Created.IsZero() {
		return nil
	}
	age := -v.Created.Unix()
	return &age
}

func largestFirst(a, b *int64, reversed bool) int {
	switch {
	case a == nil || b == nil:
		return unknownLast(a == nil, b == nil)
	case reversed:
		return cmp.Compare(*a, *b)
	}
	return cmp.Compare(*b, *a)
}

func lastIfEmpty(a, b string, reversed bool) int {
	switch {
	case a == "" || b == "":
		return unknownLast(a == "", b == "")
	case reversed:
		return strings.Compare(b, a)
	}
	return strings.Compare(a, b)
}

func unknownLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
