//go:build !vm

package volume_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

// family is a volume, a snapshot of it, a volume of that, and once more.
type family [5]string

func (f family) make(t *testing.T, n *node) {
	t.Helper()
	must(t, sized(t, n, f[0], 1, nil))
	n.fill(t, f[0])
	must(t, snapshot(t, n, f[1], f[0]), sized(t, n, f[2], 1, fromSnapshot(f[1])), snapshot(t, n, f[3], f[2]),
		sized(t, n, f[4], 1, fromSnapshot(f[3])))
}

// permutations of 0 to n-1.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, shorter := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(shorter), at, n-1))
		}
	}
	return all
}

// TestDeletedInEveryOrder: whatever goes first, what is left stays whole, and in the end no group, limit or promise is
// left. All 120 orders are tried at night, ten in every run.
func TestDeletedInEveryOrder(t *testing.T) {
	n := startAt(t, quickBtrfs(t), required)
	orders := permutations(5)
	if seeds() == 3 {
		orders = slices.Collect(func(yield func([]int) bool) {
			for i := 0; i < len(orders) && yield(orders[i]); i += 12 {
			}
		})
	}
	families := make([]family, len(orders))
	for i := range orders {
		families[i] = family{
			fmt.Sprintf("pvc-%d-0", i), fmt.Sprintf("snap-%d-1.0123456789", i), fmt.Sprintf("pvc-%d-2", i),
			fmt.Sprintf("snap-%d-3.0123456789", i), fmt.Sprintf("pvc-%d-4", i),
		}
		families[i].make(t, n)
	}
	for step := range 5 {
		for i, order := range orders {
			id := families[i][order[step]]
			if n.records(t)[id].Kind == store.OfSnapshot {
				must(t, n.DeleteSnapshot(t.Context(), id))
			} else {
				must(t, n.Delete(t.Context(), id))
			}
		}
		n.purgeAll(t)
		n.consistent(t, fmt.Sprintf("%d gone of each", step+1))
		for i, order := range orders {
			for _, left := range order[step+1:] {
				n.kept(t, families[i][left], fmt.Sprintf("order %v, %d gone", order, step+1))
			}
		}
	}
	n.unlimited(t)
}
