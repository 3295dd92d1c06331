package e2e

import "testing"

// TestTakeoverByHelmAlone goes by the page's second way: the driver without an operator.
func TestTakeoverByHelmAlone(t *testing.T) {
	nightly(t)
	k := kubevirtsCluster{node: world.workers[1], volumes: map[string]string{}}
	goesOn := func(s *scene) {
		s.t.Helper()
		s.untouched(k.plain)
		s.grows(k.node, volumePath(kubevirtPool, k.volumes["plain"])+"/lines")
	}
	replacing(t, "a cluster that runs kubevirt's operator moves to our driver alone while a pod writes",
		step{"KubevirtsOperatorRuns", func(s *scene) {
			s.whenDone(s.bare) // after kubevirt's CSIDriver has gone, which has the name of ours
			k.begin(s)
			s.apply(kubevirtClass)
			s.deleteWhenDone("storageclass", "e2e-hostpath-csi")
			k.volumes["plain"] = s.kubevirtMade(k.node, kubevirtPool, "plain")
			s.create(s.pod("plain", claimed("plain"), appendLines()...)) // the affinity alone places it
			k.plain = s.running("plain")
			s.onNode(k.node, "rm -rf "+pathOf(kubevirtPool)+"/csi/.hpp; chmod 755 "+pathOf(kubevirtPool)+"/csi")
			s.apply(s.kubevirts(kubevirtsObjects+"/webhook.yaml", k.node))
		}},
		step{"ItsDriverGoesAndOursComes", func(s *scene) {
			s.typed(takeoverPage, "--replicas=0")
			s.typed(takeoverPage, "--cascade=foreground")
			goesOn(s)
			values := s.values("info")
			values["storagePools"] = []pool{{Name: kubevirtPool, Path: pathOf(kubevirtPool)}}
			values["storageClasses"] = []class{}
			file, _, err := s.valuesFile(values)
			s.must(err)
			s.typed(takeoverPage, "--values values.yaml", "values.yaml", file+" --wait")
			s.adopted(k.node, kubevirtPool, 1)
			goesOn(s)
		}},
		step{"WhatKubevirtsOperatorMadeIsRemoved", func(s *scene) {
			k.removeOperator(s)
			s.typed(takeoverPage, "of=app.kubernetes.io/managed-by", // neither of the two is here
				"kubectl --namespace "+namespace+" delete prometheusrules", "echo no prometheusrules",
				"kubectl delete securitycontextconstraints", "echo no securitycontextconstraints")
			for _, object := range []string{
				"customresourcedefinition/" + definition, "validatingwebhookconfiguration/" + kubevirtWebhook,
				"daemonset/" + kubevirtsDaemonSet, "service/hpp-prometheus-metrics",
				"serviceaccount/hostpath-provisioner-admin-csi", "clusterrole/hostpath-provisioner-admin-csi",
				"clusterrolebinding/hostpath-provisioner-admin-csi", "role/hostpath-provisioner-admin-csi",
				"rolebinding/hostpath-provisioner-admin-csi",
			} {
				s.absentObject(object)
			}
			goesOn(s)
		}},
		step{"OldAndNewVolumesWork", func(s *scene) {
			s.deletePod("plain")
			s.output(s.pod("reader", claimed("plain"), "read", dataDir+"/lines"))
			s.deletePod("reader")
			s.create(s.claim("new", "e2e-hostpath-csi", "16Mi"))
			s.output(on(k.node, s.pod("new", claimed("new"), writeData()...)))
			s.deletePod("new")
			for _, claim := range []string{"plain", "new"} {
				volume := s.bound(claim).Name
				s.remove(s.claim(claim, "", "0"))
				s.gone(volume)
				s.vanishes(k.node, volumePath(kubevirtPool, volume))
			}
			s.restoreRelease(kubevirtPool)
		}},
	)
}
