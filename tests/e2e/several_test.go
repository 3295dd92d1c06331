package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSeveralPoolsOfOneClass(t *testing.T) {
	node := world.workers[0]
	parallel(t, "a class that names several pools fills one after the other",
		step{"EachPoolTakesAVolume", func(s *scene) {
			in := map[string]bool{}
			for _, name := range []string{"first", "second"} {
				s.create(s.claim(name, classDisks, "16Mi"))
				s.output(on(node, s.pod(name, claimed(name), writeData()...)))
				pv := s.bound(name)
				pool := pv.Spec.CSI.VolumeAttributes["storagePool"]
				s.existsOnlyOn(node, volumePath(pool, pv.Name)+"/file")
				in[pool] = true
				listed := s.typed("how-to/several-disks.md", "get volumes", "NODE", node, "nvme1", pool)
				if !strings.Contains(listed, s.namespace+"/"+name) {
					s.t.Errorf("no claim %s is listed in pool %s:\n%s", name, pool, listed)
				}
			}
			if !in[poolDiskA] || !in[poolDiskB] {
				s.t.Errorf("the volumes are in the pools %v", in)
			}
		}},
		step{"NoneTakesAThird", func(s *scene) {
			s.capacityBecomes(classDisks, node, "0", none)
			s.create(s.claim("third", classDisks, "16Mi"))
			s.create(on(node, s.pod("third", claimed("third"), writeData()...)))
			s.said("Pod", "third", "FailedScheduling", "free storage")
			s.isPending("third")
		}},
		step{"ADeletedVolumeMakesRoom", func(s *scene) {
			volume := s.bound("first").Name
			s.deletePod("first")
			s.remove(s.claim("first", "", "0"))
			s.gone(volume)
			s.phase("third", corev1.PodSucceeded)
		}},
	)
}
