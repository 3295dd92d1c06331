package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Filter chooses rows; what is empty chooses all.
type Filter struct {
	Namespace, Node, Pool, Class string
	States                       []string
}

// Check refuses a state that is none of these.
func (f Filter) Check(states []string) error {
	for _, state := range f.States {
		if !slices.Contains(states, state) {
			return fmt.Errorf("--state: %q: want %s", state, strings.Join(states, ", "))
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

// OfPool reports whether one is chosen.
func (f Filter) OfPool(p Pool) bool {
	return f.Place(p.Node, p.Name) && (len(f.States) == 0 || slices.ContainsFunc(f.States, p.Is))
}

// Place reports whether a pool on a node is chosen.
func (f Filter) Place(node, pool string) bool { return means(f.Node, node) && means(f.Pool, pool) }

// Deleted reports whether one is chosen.
func (f Filter) Deleted(d Deleted) bool {
	namespace, _, _ := strings.Cut(d.Claim, "/")
	return means(f.Namespace, namespace) && f.Place(d.Node, d.Pool)
}

// Order is one of what rows can be sorted by.
type Order[T any] struct {
	Name    string
	compare func(a, b T, reversed bool) int
}

func number[T any](name string, of func(T) *int64) Order[T] {
	return Order[T]{name, func(a, b T, reversed bool) int { return largestFirst(of(a), of(b), reversed) }}
}

func text[T any](name string, of func(T) string) Order[T] {
	return Order[T]{name, func(a, b T, reversed bool) int { return lastIfEmpty(of(a), of(b), reversed) }}
}

// VolumeOrders are those of volumes, the usual one first.
func VolumeOrders() []Order[Volume] {
	return []Order[Volume]{
		{"claim", func(a, b Volume, reversed bool) int {
			return cmp.Or(lastIfEmpty(a.Namespace, b.Namespace, reversed), lastIfEmpty(a.Claim, b.Claim, reversed),
				strings.Compare(a.ID, b.ID))
		}},
		number("size", func(v Volume) *int64 { return v.Size }),
		number("used", func(v Volume) *int64 { return v.Used }),
		number("use", func(v Volume) *int64 { return v.Percent }),
		number("age", func(v Volume) *int64 { return v.age() }),
		text("node", func(v Volume) string { return v.Node }),
		text("pool", func(v Volume) string { return v.Pool }),
	}
}

// PoolOrders are those of pools, the usual one first.
func PoolOrders() []Order[Pool] {
	return []Order[Pool]{
		text("node", func(p Pool) string { return p.Node }),
		text("pool", func(p Pool) string { return p.Name }),
		number("size", func(p Pool) *int64 { return p.Size }),
		number("free", func(p Pool) *int64 { return p.Free }),
		number("promised", func(p Pool) *int64 { return p.Promised }),
		number("largest", func(p Pool) *int64 { return p.Largest }),
		number("volumes", func(p Pool) *int64 { return p.Volumes }),
	}
}

// Names are the values of --sort, each of which may have a "-" before it.
func Names[T any](orders []Order[T]) (all []string) {
	for _, o := range orders {
		all = append(all, o.Name)
	}
	return all
}

// Sort orders rows: names from a to z, numbers from the largest, ages from the oldest, and the other way round where
// by begins with "-". What is not known comes last. Rows that do not differ are in the usual order.
func Sort[T any](all []T, by string, orders []Order[T]) error {
	name, reversed := strings.CutPrefix(by, "-")
	i := slices.Index(Names(orders), name)
	if i < 0 {
		return fmt.Errorf("--sort: %q: want %s, or one of them with - before it", by,
			strings.Join(Names(orders), ", "))
	}
	slices.SortStableFunc(all, func(a, b T) int { return orders[0].compare(a, b, false) })
	slices.SortStableFunc(all, func(a, b T) int { return orders[i].compare(a, b, reversed) })
	return nil
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
