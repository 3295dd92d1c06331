package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWayBackToKubevirt types how kubevirt's operator gets its cluster back. The test makes itself what that would make
// then: its definition and its objects, with none of ours in their way, and a driver that stands in for its own.
func TestWayBackToKubevirt(t *testing.T) {
	nightly(t)
	k := kubevirtsCluster{node: world.workers[1], volumes: map[string]string{}}
	var saved string
	replacing(t, "a cluster that was taken over from kubevirt's operator goes back to it",
		step{"KubevirtsClusterIsTakenOver", func(s *scene) {
			k.begin(s)
			s.apply(kubevirtClass)
			s.deleteWhenDone("storageclass", "e2e-hostpath-csi")
			k.volumes["old"] = s.kubevirtMade(k.node, kubevirtPool, "old")
			saved = filepath.Join(s.artifacts, "hostpathprovisioner.json")
			s.typed(takeoverPage, "for the way back", "> hostpathprovisioner.json", "> "+saved)
			s.must(s.install(s.ctx, s.operated()))
			s.typed(takeoverPage, "--replicas=0")
			s.onNode(k.node, "rm -rf "+pathOf(kubevirtPool)+"/csi/.hpp; chmod 755 "+pathOf(kubevirtPool)+"/csi")
			s.typed(takeoverPage, "observedVersion")
			s.condition("Available", "True")
			s.adopted(k.node, kubevirtPool, 1)
			k.removeOperator(s)
		}},
		step{"OursMakesAVolumeToo", func(s *scene) {
			s.create(s.claim("new", "e2e-hostpath-csi", "16Mi"))
			s.output(s.pod("new", claimed("new"), writeData()...))
			k.volumes["new"] = s.bound("new").Name
			s.deletePod("new")
		}},
		step{"OursGoes", func(s *scene) {
			s.typed(takeoverPage, "delete-with-volumes")
			s.nothingIsOwned()
			s.typed(takeoverPage, "helm uninstall hpp")
			s.must(s.noDriver(s.ctx))
			s.absentObject("customresourcedefinition/" + definition)
			for _, volume := range k.volumes {
				s.existsOnlyOn(k.node, volumePath(kubevirtPool, volume)+"/file")
			}
		}},
		step{"KubevirtsIsBack", func(s *scene) {
			s.onNode(k.node, "rm -rf "+kubevirtStateDir) // kubevirt's driver remembers no pool
			s.apply(s.kubevirts(kubevirtsObjects+"/definition.yaml", k.node))
			text, err := os.ReadFile(saved)
			s.must(err)
			s.askWebhook(string(text), "apply", "--filename", "-")
			s.apply(s.kubevirts(kubevirtsObjects+"/leftovers.yaml", k.node))
			s.runKubevirtsDriver(k.node, []pool{{Name: kubevirtPool, Path: pathOf(kubevirtPool)}})
			for claim := range k.volumes {
				s.output(s.pod(claim, claimed(claim), "read", dataDir+"/file"))
				s.deletePod(claim)
			}
		}},
		step{"AsBefore", func(s *scene) { k.leave(s) }},
	)
}

// leave ends kubevirt's stand-in, and lets our driver delete the volumes.
func (k *kubevirtsCluster) leave(s *scene) {
	s.t.Helper()
	s.must(s.letKubevirtsResourceGo(s.ctx))
	s.kubectl("delete", "hostpathprovisioners", "--all")
	s.kubectl("delete", "customresourcedefinition", definition)
	s.kubectl("delete", "csidriver", driverName)
	s.kubectl("wait", "pods", "--for", "delete", "--namespace", namespace, "--selector", "k8s-app=hostpath-provisioner",
		"--timeout", waitTimeout.String())
	s.must(s.install(s.ctx, s.values("info", pool{Name: kubevirtPool, Path: pathOf(kubevirtPool)})))
	for claim, volume := range k.volumes {
		s.remove(s.claim(claim, "", "0"))
		s.gone(volume)
		s.vanishes(k.node, volumePath(kubevirtPool, volume))
	}
	s.restoreRelease(kubevirtPool)
}
