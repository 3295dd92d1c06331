package e2e

import (
	"fmt"
	"testing"
	"time"
)

// change is how long after a change the object should say so: the node looks every 2 s, and csi-provisioner asks the
// controller every capacityPoll, which is 30 s in the chart. No test fails on a clock: after waitTimeout it gives up.
const change = 2*time.Second + capacityPoll

func TestCapacityObjects(t *testing.T) {
	node := world.workers[0]
	class := classOf(poolMetered)
	var before int64
	parallel(t, "a CSIStorageCapacity object for each node and class follows what changes",
		step{"OneObjectForEachNodeAndClass", func(s *scene) {
			for _, c := range classesFor(basePools()) {
				want := len(s.nodes)
				// the controller knows more than an object, and the scheduler asks for none
				if c.VolumeBindingMode == "Immediate" {
					want = 0
				}
				s.eventually(fmt.Sprintf("%d objects for class %s", want, c.Name), func() (bool, string) {
					byNode, err := s.capacities(c.Name)
					return err == nil && len(byNode) == want, fmt.Sprintf("%v, %v", byNode, err)
				})
			}
		}},
		step{"NewDiskIsSeen", func(s *scene) {
			s.capacityBecomes(class, node, "0", none)
			s.mountDisk(node, poolMetered, "1G", pathOf(poolMetered))
			s.measured("a disk was mounted", class, node, some)
			all, err := s.capacities(class)
			s.must(err)
			before = all[node]
			for _, other := range s.otherThan(node) {
				if all[other] != 0 {
					s.t.Errorf("%s has %d bytes and no disk", other, all[other])
				}
			}
		}},
		step{"UsedSpaceIsSeen", func(s *scene) {
			const used = 300 << 20
			s.onNode(node, fmt.Sprintf("fallocate -l %d %s/ballast", used, pathOf(poolMetered)))
			s.measured("300 MiB were written", class, node, func(now int64) bool { return before-now >= used-64<<20 })
			s.onNode(node, "rm "+pathOf(poolMetered)+"/ballast")
			s.measured("300 MiB were removed", class, node, func(now int64) bool { return now == before })
		}},
		step{"UnmountedDiskIsSeen", func(s *scene) {
			s.unmountDisk(node, pathOf(poolMetered))
			s.measured("the disk was unmounted", class, node, none)
		}},
	)
}

// measured waits for a class's capacity on a node and prints how long it took.
func (s *scene) measured(after, class, node string, is func(int64) bool) {
	s.t.Helper()
	begin := time.Now()
	s.eventually("the capacity object says so after "+after, func() (bool, string) {
		all, err := s.capacities(class)
		return err == nil && is(all[node]), fmt.Sprintf("%v, %v", all, err)
	})
	s.t.Logf("published %.1f s after %s (expected: %s)", time.Since(begin).Seconds(), after, change)
}

func TestCapacityDecidesPlacement(t *testing.T) {
	small, large := world.workers[0], world.workers[1]
	class := classOf(poolSized)
	parallel(t, "a claim goes where it fits, and one that fits nowhere waits and says why",
		step{"DisksOfDifferentSizes", func(s *scene) {
			s.mountDisk(small, poolSized, "512M", pathOf(poolSized))
			s.mountDisk(large, poolSized, "2G", pathOf(poolSized))
			s.capacityBecomes(class, small, "less than 512 MiB", func(n int64) bool { return n > 0 && n < 512<<20 })
			s.capacityBecomes(class, large, "more than 1 GiB", func(n int64) bool { return n > 1<<30 })
		}},
		step{"ClaimThatFitsOnOneWorkerLandsThere", func(s *scene) {
			s.create(s.claim("fits", class, "1Gi"))
			s.output(s.pod("fits", claimed("fits"), writeData()...))
			if got := s.nodeOf(s.bound("fits")); got != large {
				s.t.Errorf("volume of 1 GiB is on %s, only %s has the room", got, large)
			}
		}},
		step{"ClaimThatFitsNowhereStaysPending", func(s *scene) {
			s.create(s.claim("toolarge", class, "100Gi"))
			s.create(s.pod("toolarge", claimed("toolarge"), writeData()...))
			why := s.said("Pod", "toolarge", "FailedScheduling", "did not have enough free storage")
			s.t.Logf("the pod's event: %s", why)
			s.isPending("toolarge")
		}},
		step{"VolumesGoBeforeTheirDisks", func(s *scene) {
			volume := s.bound("fits").Name
			s.deletePod("fits")
			s.remove(s.claim("fits", "", "0"))
			s.gone(volume)
			s.vanishes(large, volumePath(poolSized, volume))
		}},
	)
}
