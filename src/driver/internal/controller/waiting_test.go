package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestWhyClaimsWait: their owners are told once, on which nodes the pool is missing and why.
func TestWhyClaimsWait(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", gib), newNode("b", gib)
	for _, n := range []*node{a, b} {
		n.Show(nodeapi.PoolStatus{Name: "local", State: "absent", Message: "nothing is mounted at /mnt/ssd"})
	}
	r := start(t, a, b)
	claim := func(name, in string, bytes int64, since time.Time) controller.WaitingClaim {
		return controller.WaitingClaim{
			Claim: nodeapi.Claim{Namespace: "shop", Name: name, UID: name}, Pool: in, Bytes: bytes, Since: since,
		}
	}
	old := r.now.Add(-time.Minute)
	r.set(func() {
		r.drivers = append(r.drivers, "c", "d", "e")
		r.waiting = []controller.WaitingClaim{
			claim("small", "", gib/2, old), claim("large", "local", 10*gib, old), claim("unknown", "ssd", 1, old),
			claim("new", "local", gib, r.now),
		}
	})
	r.look(t)
	told := func(want ...string) {
		t.Helper()
		var events []string
		tunneltest.Until(t, strings.Join(want, ", "), func() bool {
			events = append(events, r.told("")...)
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
		`Warning shop/unknown PoolUnknown: storagePool of the StorageClass: "ssd" is in no configuration; want one of local`)
	r.set(func() { r.drivers = []string{"a", "b"} })
	a.Show(nodeapi.PoolStatus{
		Name: "local", State: "present", Size: 2 * gib, Allocatable: gib, Growable: gib, Promised: gib,
	})
	b.Show(nodeapi.PoolStatus{Name: "local", State: "present", Size: gib, Allocatable: gib / 4, Growable: gib / 4})
	told("Warning shop/large ClaimTooLarge: the claim asks for 10Gi, and no node could ever have that in pool local: the most " +
		"is 2Gi, on node a; ask for less, or make the pool larger")
	b.Show(nodeapi.PoolStatus{Name: "local", State: "absent", Message: "gone"})
	told("Warning shop/large PoolMissing: pool local is present on 1 of 2 nodes; b: gone; where it is, a new volume can have " +
		"1Gi, and the claim asks for 10Gi")
	r.set(func() { r.waiting[3].Bytes = 2 * gib })
	r.pass(time.Minute)
	told("Warning shop/new PoolMissing: pool local is present on 1 of 2 nodes; b: gone; where it is, a new volume can have " +
		"1Gi, and the claim asks for 2Gi")
}
