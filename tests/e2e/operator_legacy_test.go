package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// legacyPath is where the legacy provisioner keeps a volume.
func legacyPath(volume string) string { return seedPath + "/" + volume }

// legacyVolume waits until a claim of a legacy class is bound, and checks what kind of volume it got, and where.
func (s *scene) legacyVolume(claim, node string) string {
	s.t.Helper()
	pv := s.bound(claim)
	if pv.Spec.HostPath == nil || pv.Spec.HostPath.Path != legacyPath(pv.Name) {
		s.t.Fatalf("PersistentVolume %s is no hostPath volume at %s: %+v",
			pv.Name, legacyPath(pv.Name), pv.Spec.PersistentVolumeSource)
	}
	if got := pv.Annotations[provisionOn]; got != node {
		s.t.Errorf("PersistentVolume %s says %s=%q, want %q", pv.Name, provisionOn, got, node)
	}
	s.existsOnlyOn(node, legacyPath(pv.Name))
	return pv.Name
}

// used writes to a claim and reads it again, in two pods that only the volume places, and returns the node.
func (s *scene) used(claim string) string {
	s.t.Helper()
	sum := firstWord(s.output(anywhere(s.pod("writer", claimed(claim), writeData()...))))
	s.deletePod("writer")
	s.output(anywhere(s.pod("reader", claimed(claim), checkData(sum)...)))
	node := s.phase("reader", corev1.PodSucceeded).Spec.NodeName
	s.deletePod("reader")
	return node
}

func TestOperatorServesTheSeedsLegacyPath(t *testing.T) {
	nightly(t)
	first, second := world.workers[0], world.workers[1]
	volumes := map[string]string{} // of claims
	nodes := map[string]string{}
	replacing(t, "the custom resource with a pathConfig works as it is printed",
		step{"ApplyVerbatim", func(s *scene) {
			s.installOperator()
			s.admit(s.seed("legacy-cr.yaml"))
			s.apply(s.seed("legacy-storageclasses.yaml"))
			for _, class := range []string{legacyClass, immediateClass, seedClass} {
				s.deleteWhenDone("storageclass", class)
			}
			s.condition("Available", "True")
			s.daemonSet("-legacy")
			s.daemonSet("-csi")
		}},
		step{"AnnotationPlacesAnImmediateClaim", func(s *scene) {
			s.create(annotated(s.claim("immediate", immediateClass, "16Mi"), provisionOn, second))
			volumes["immediate"], nodes["immediate"] = s.legacyVolume("immediate", second), second
			if got := s.used("immediate"); got != second {
				s.t.Errorf("the pod ran on %s, its volume is on %s", got, second)
			}
		}},
		step{"AnnotationNeedsNoConsumer", func(s *scene) {
			s.create(annotated(s.claim("annotated", legacyClass, "16Mi"), provisionOn, first))
			volumes["annotated"], nodes["annotated"] = s.legacyVolume("annotated", first), first
		}},
		step{"SelectedNodePlacesTheRest", func(s *scene) {
			s.create(s.claim("selected", legacyClass, "16Mi"))
			s.said("PersistentVolumeClaim", "selected", "WaitForFirstConsumer")
			s.isPending("selected")
			s.output(on(second, s.pod("first", claimed("selected"), writeData()...)))
			s.deletePod("first")
			volumes["selected"], nodes["selected"] = s.legacyVolume("selected", second), second
			if got := s.used("selected"); got != second {
				s.t.Errorf("the pod ran on %s, its volume is on %s", got, second)
			}
		}},
		step{"TheVolumeSaysWhatWasAskedFor", func(s *scene) {
			if got := s.bound("selected").Spec.Capacity[corev1.ResourceStorage]; got.Value() != 16<<20 {
				s.t.Errorf("capacity %s, 16Mi was asked for", got.String())
			}
		}},
		step{"BadInputIsExplained", func(s *scene) {
			s.create(annotated(s.claim("nowhere", legacyClass, "16Mi"), provisionOn, "no-such-node"))
			s.said("PersistentVolumeClaim", "nowhere", "NodeNotFound", "no-such-node", provisionOn)
			s.create(s.claim("unplaced", immediateClass, "16Mi"))
			s.said("PersistentVolumeClaim", "unplaced", "WaitingForAnnotation", provisionOn)
			s.isPending("nowhere")
			s.remove(s.claim("nowhere", "", "0"))
			s.remove(s.claim("unplaced", "", "0"))
		}},
		step{"ClaimsOfOnePodOnTwoNodes", func(s *scene) {
			s.create(annotated(s.claim("there", legacyClass, "16Mi"), provisionOn, first))
			s.legacyVolume("there", first)
			s.create(s.claim("here", legacyClass, "16Mi"))
			p := on(second, s.pod("torn", claimed("here"), writeData()...))
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "there", VolumeSource: claimed("there")})
			s.create(p)
			s.said("Pod", "torn", "FailedScheduling", "node affinity")
			s.deletePod("torn")
			there := s.bound("there").Name
			s.remove(s.claim("there", "", "0"))
			s.remove(s.claim("here", "", "0"))
			s.gone(there)
			s.vanishes(first, legacyPath(there))
		}},
		step{"TheCSIDriverServesThePoolLegacy", func(s *scene) {
			s.create(s.claim("csi", seedClass, "16Mi"))
			s.output(on(first, s.pod("csi", claimed("csi"), writeData()...)))
			s.deletePod("csi")
			volume := s.bound("csi").Name
			s.existsOnlyOn(first, seedPath+"/csi/"+volume+"/file")
			s.remove(s.claim("csi", "", "0"))
			s.gone(volume)
		}},
		step{"DeletionIsRefusedWhileThereAreLegacyVolumes", func(s *scene) {
			s.denied([]string{"3 volumes", s.namespace + "/immediate", volumes["immediate"]},
				"delete", "hostpathprovisioner", customResource, "--timeout", "20s")
		}},
		step{"DeletedVolumesLeaveNothing", func(s *scene) {
			for claim, volume := range volumes {
				s.remove(s.claim(claim, "", "0"))
				s.gone(volume)
				s.vanishes(nodes[claim], legacyPath(volume))
			}
			for _, node := range s.nodes {
				if left := strings.Join(s.list(node, seedPath), " "); left != "csi" {
					s.t.Errorf("%s holds %q in %s, want csi alone", node, left, seedPath)
				}
			}
		}},
		step{"TheResourceGoesCleanly", func(s *scene) {
			s.deleteResource()
			s.noPodsOf(nodeComponent)
			s.noPodsOf("legacy-provisioner")
			s.nothingIsOwned()
		}},
	)
}
