package gates_test

import (
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec/poolspectest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// TestVolumesBlockThePoolThatTheyMean, and where they mean none each: no pool goes that may have one.
func TestVolumesBlockThePoolThatTheyMean(t *testing.T) {
	for _, c := range poolspectest.Read(t).DefaultPool {
		for _, pool := range append(slices.Clone(c.Pools), "gone") {
			blocks := len(gates.InPool([]gates.Volume{{PV: "a", Pool: c.Named}}, pool, c.Pools)) == 1
			unsure := c.Named == "" && (c.Means == "" || pool == "gone" && c.Means != "legacy")
			if want := unsure || pool == c.Means; blocks != want {
				t.Errorf("a volume of %q blocks %q of %q: %v", c.Named, pool, c.Pools, blocks)
			}
		}
	}
}
