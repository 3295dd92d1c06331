package csi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestWhyClaimsWait: their owners are told once, on which nodes the pool is missing and why.
func TestWhyClaimsWait(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	for _, n := range []*csitest.Node{a, b} {
		n.Show(nodeapi.PoolStatus{Name: "local", State: "absent", Message: "nothing is mounted at /mnt/ssd"})
	}
	r := csitest.Start(t, a, b)
	claim := func(name, in string, bytes int64, since time.Time) nodeapi.WaitingClaim {
		return nodeapi.WaitingClaim{
			Claim: nodeapi.Claim{Namespace: "shop", Name: name, UID: name}, Pool: in, Bytes: bytes, Since: since,
		}
	}
	old := r.Clock.Add(-time.Minute)
	r.Set(func() {
		r.Drivers = append(r.Drivers, "c", "d", "e")
		r.Pending = []nodeapi.WaitingClaim{
			claim("small", "", csitest.GiB/2, old), claim("large", "local", 10*csitest.GiB, old), claim("unknown",
				"ssd", 1, old),
			claim("new", "local", csitest.GiB, r.Clock),
		}
	})
	r.Look(t)
	told := func(want ...string) {
		t.Helper()
		var events []string
		waittest.Until(t, strings.Join(want, ", "), func() bool {
			events = append(events, r.Told("")...)
			return len(events) >= len(want)
		})
		for i, e := range events {
			if i >= len(want) || e != want[i] {
				t.Errorf("told was %q", e)
			}
		}
	}
	const missing = "PoolMissing: pool local is present on 0 of 5 nodes; a: nothing is mounted at /mnt/ssd; " +
		"b: nothing is mounted at /mnt/ssd; c: it is not connected to the controller; and 2 more"
	told("Warning shop/small "+missing, "Warning shop/large "+missing,
		`Warning shop/unknown PoolUnknown: storagePool of the StorageClass: "ssd" is in no configuration; want one of `+
			"local")
	r.Set(func() { r.Drivers = []string{"a", "b"} })
	a.Show(nodeapi.PoolStatus{
		Name: "local", State: "present", Size: 2 * csitest.GiB, Allocatable: csitest.GiB, Growable: csitest.GiB,
		Promised: csitest.GiB,
	})
	b.Show(nodeapi.PoolStatus{
		Name: "local", State: "present", Size: csitest.GiB, Allocatable: csitest.GiB / 4,
		Growable: csitest.GiB / 4,
	})
	told("Warning shop/large ClaimTooLarge: the claim asks for 10Gi, and no node could ever have that in pool " +
		"local: the most is 2Gi, on node a; ask for less, or make the pool larger")
	b.Show(nodeapi.PoolStatus{Name: "local", State: "absent", Message: "gone"})
	told("Warning shop/large PoolMissing: pool local is present on 1 of 2 nodes; b: gone; where it is, a new volume " +
		"can have 1Gi, and the claim asks for 10Gi")
	r.Set(func() { r.Pending[3].Bytes = 2 * csitest.GiB })
	r.Pass(time.Minute)
	told("Warning shop/new PoolMissing: pool local is present on 1 of 2 nodes; b: gone; where it is, a new volume " +
		"can have 1Gi, and the claim asks for 2Gi")
}
