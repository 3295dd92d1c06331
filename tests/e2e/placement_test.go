package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWaitForFirstConsumer(t *testing.T) {
	node := world.workers[1]
	var sum string
	parallel(t, "WaitForFirstConsumer places the volume on the pod's node",
		step{"ClaimWaitsForAPod", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "64Mi"))
			s.said("PersistentVolumeClaim", "data", "WaitForFirstConsumer")
			s.isPending("data")
		}},
		step{"PodOnTheSecondWorkerWrites", func(s *scene) {
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
		}},
		step{"VolumeIsADirectoryOnThatNodeAlone", func(s *scene) {
			pv := s.bound("data")
			if got := s.nodeOf(pv); got != node {
				s.t.Fatalf("the volume belongs to %s, its pod ran on %s", got, node)
			}
			path := volumePath(poolLocal, pv.Spec.CSI.VolumeHandle)
			s.existsOnlyOn(node, path)
			if got := s.sum(node, path+"/file"); got != sum {
				s.t.Errorf("file on the node has sha256 %s, the pod wrote %s", got, sum)
			}
		}},
		step{"VolumeSaysWhatItIs", func(s *scene) {
			pv := s.bound("data")
			if size := pv.Spec.Capacity[corev1.ResourceStorage]; size.Value() != 64<<20 {
				s.t.Errorf("capacity is %s, 64Mi was asked for", size.String())
			}
			if pv.Spec.CSI.VolumeHandle != pv.Name {
				s.t.Errorf("handle is %q, want the volume's name %q", pv.Spec.CSI.VolumeHandle, pv.Name)
			}
			for key, want := range map[string]string{"storagePool": poolLocal, "enforcement": "none"} {
				if got := pv.Spec.CSI.VolumeAttributes[key]; got != want {
					s.t.Errorf("volume attribute %s is %q, want %q", key, got, want)
				}
			}
		}},
	)
}

func TestImmediate(t *testing.T) {
	var node string
	parallel(t, "Immediate binds without a pod, and the pod follows the volume",
		step{"ClaimIsBoundWithoutAPod", func(s *scene) {
			s.create(s.claim("data", classImmediate, "16Mi"))
			pv := s.bound("data")
			node = s.nodeOf(pv)
			s.existsOnlyOn(node, volumePath(poolLocal, pv.Name))
		}},
		step{"PodRunsWhereTheVolumeIs", func(s *scene) {
			s.output(anywhere(s.pod("writer", claimed("data"), writeData()...)))
			if got := s.phase("writer", corev1.PodSucceeded).Spec.NodeName; got != node {
				s.t.Errorf("pod ran on %s, its volume is on %s", got, node)
			}
		}},
	)
}

func TestTwoPools(t *testing.T) {
	node := world.workers[0]
	parallel(t, "two pools and two classes keep their volumes apart",
		step{"APodUsesBoth", func(s *scene) {
			s.create(s.claim("first", classOf(poolLocal), "16Mi"))
			s.create(s.claim("second", classOf(poolSecond), "16Mi"))
			p := on(node, s.pod("writer", claimed("first"), writeData()...))
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "second", VolumeSource: claimed("second")})
			p.Spec.InitContainers = []corev1.Container{{
				Name: "second", Image: s.image("selftest"), Args: writeData(),
				VolumeMounts: []corev1.VolumeMount{{Name: "second", MountPath: dataDir}},
			}}
			s.output(p)
		}},
		step{"EachVolumeLiesInItsPool", func(s *scene) {
			first, second := s.bound("first").Name, s.bound("second").Name
			for path, want := range map[string]bool{
				volumePath(poolLocal, first) + "/file":   true,
				volumePath(poolSecond, second) + "/file": true,
				volumePath(poolLocal, second):            false,
				volumePath(poolSecond, first):            false,
			} {
				if got := s.exists(node, path); got != want {
					s.t.Errorf("%s on %s: there: %t, want %t", path, node, got, want)
				}
			}
		}},
	)
}

func TestSelectedNodes(t *testing.T) {
	chosen, other := world.workers[0], world.workers[1]
	var volume string
	label := func(s *scene, value string) { s.kubectl("label", "--overwrite", "node", chosen, selectedLabel+value) }
	parallel(t, "a pool on selected nodes makes nothing on the others",
		step{"NoNodeIsSelected", func(s *scene) {
			label(s, "-")
			for _, node := range s.nodes {
				s.capacityBecomes(classOf(poolSelected), node, "0", none)
			}
		}},
		step{"LabelledNodeTakesPart", func(s *scene) {
			label(s, "=yes")
			s.capacityBecomes(classOf(poolSelected), chosen, "more than 0", some)
			s.create(s.claim("data", classOf(poolSelected), "16Mi"))
			s.output(s.pod("writer", claimed("data"), writeData()...)) // wherever the scheduler likes
			pv := s.bound("data")
			volume = pv.Name
			if got := s.nodeOf(pv); got != chosen {
				s.t.Errorf("volume is on %s, only %s is selected", got, chosen)
			}
		}},
		step{"PodForAnotherNodeWaits", func(s *scene) {
			s.create(s.claim("elsewhere", classOf(poolSelected), "16Mi"))
			s.create(on(other, s.pod("elsewhere", claimed("elsewhere"), writeData()...)))
			s.said("Pod", "elsewhere", "FailedScheduling", "free storage")
			s.isPending("elsewhere")
		}},
		step{"NothingIsMadeOnTheOthers", func(s *scene) {
			s.existsOnlyOn(chosen, volumePath(poolSelected, volume))
			for _, node := range s.otherThan(chosen) {
				if s.exists(node, pathOf(poolSelected)) {
					s.t.Errorf("%s has %s", node, s.onNode(node, "find "+pathOf(poolSelected)))
				}
			}
		}},
		step{"UnselectedNodeStillServesItsVolumes", func(s *scene) {
			label(s, "-")
			s.capacityBecomes(classOf(poolSelected), chosen, "0", none)
			s.output(s.pod("reader", claimed("data"), "read", dataDir+"/file"))
			s.deletePod("writer")
			s.deletePod("reader")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(chosen, volumePath(poolSelected, volume))
		}},
	)
}

func TestSymbolicLink(t *testing.T) {
	node := world.workers[0]
	parallel(t, "a pool's path may be a symbolic link on the host",
		step{"EveryNodeFollowsItsLink", func(s *scene) {
			for _, node := range s.nodes {
				s.capacityBecomes(classOf(poolLinked), node, "more than 0", some)
			}
		}},
		step{"PodWrites", func(s *scene) {
			s.create(s.claim("data", classOf(poolLinked), "16Mi"))
			s.output(on(node, s.pod("writer", claimed("data"), writeData()...)))
		}},
		step{"VolumeLiesWhereTheLinkPoints", func(s *scene) {
			volume := s.bound("data").Name
			if !s.exists(node, linkTarget+"/csi/"+volume+"/file") {
				s.t.Errorf("no %s/csi/%s/file", linkTarget, volume)
			}
			if kind := s.onNode(node, "stat -c %F "+pathOf(poolLinked)); kind != "symbolic link" {
				s.t.Errorf("%s is now a %s", pathOf(poolLinked), kind)
			}
		}},
		step{"DeletionRemovesIt", func(s *scene) {
			volume := s.bound("data").Name
			s.deletePod("writer")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, linkTarget+"/csi/"+volume)
		}},
	)
}
