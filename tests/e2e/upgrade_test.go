package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// restoreRelease brings the release back to what the other features expect,
// and lets the nodes forget a pool that only this feature had.
func (s *scene) restoreRelease(extra string) {
	s.t.Helper()
	s.must(s.install(s.ctx, s.values("info")))
	for _, node := range s.nodes {
		s.driver(node, "pool", "forget", extra)
	}
}

// installEarlier replaces the suite's release by one of an earlier chart, which brings its definition in crds/.
func (s *scene) installEarlier(tree string, values map[string]any) {
	s.t.Helper()
	s.must(s.bare(s.ctx))
	s.kubectl("delete", "customresourcedefinition", definition, "--ignore-not-found", "--timeout", "1m")
	s.must(s.installChart(s.ctx, filepath.Join(tree, chartFolder), values))
}

// earlier unpacks a state of this repository from testdata, for a clone need not have the commit, and builds and pushes
// images of it.
func (s *scene) earlier(archive, tag string, names ...string) (tree string, images map[string]any) {
	s.t.Helper()
	tree = s.t.TempDir()
	packed := filepath.Join("testdata", archive)
	if out, err := exec.CommandContext(s.ctx, "tar", "-C", tree, "-xzf", packed).CombinedOutput(); err != nil {
		s.t.Fatalf("unpack %s, which testdata/README.md says how to make: %v: %s", packed, err, out)
	}
	digests, err := s.cluster.PushProductOf(s.ctx, tree, tag, names...)
	s.must(err)
	images = map[string]any{}
	for name, digest := range digests {
		images[name] = map[string]any{"tag": tag, "digest": digest}
	}
	return tree, images
}

func TestUpgradeAndReinstall(t *testing.T) {
	nightly(t)
	const added = "added"
	node := world.workers[0]
	extra := pool{Name: added, Path: pathOf(added)}
	var sum, volume, taken, takenSum string
	var appending *corev1.Pod
	alone(t, "volumes outlive an upgrade with other values, helm uninstall and reinstall",
		step{"VolumesAreInUse", func(s *scene) {
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
			s.create(s.claim("data", classOf(poolLocal), "64Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.deletePod("writer")
			s.create(on(node, s.pod("appending", claimed("data"), appendLines()...)))
			appending = s.running("appending")
		}},
		step{"UpgradeWithNewValues", func(s *scene) {
			before := map[string]*corev1.Pod{}
			for _, n := range s.nodes {
				before[n] = s.driverPod(n)
			}
			file, _, err := s.valuesFile(s.values("debug", extra))
			s.must(err)
			s.typed("how-to/upgrade.md", "helm upgrade", "values.yaml", file+" --wait")
			for _, n := range s.nodes {
				if now := s.driverPod(n); now.UID == before[n].UID {
					s.t.Errorf("the driver's pod on %s was not replaced: it does not have the new pools", n)
				}
			}
		}},
		step{"OldVolumesAndNewPoolWork", func(s *scene) {
			s.untouched(appending)
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.deletePod("reader")
			s.create(s.claim("taken", classOf(added), "16Mi"))
			takenSum = firstWord(s.output(on(node, s.pod("taken", claimed("taken"), writeData()...))))
			taken = s.bound("taken").Name
			s.deletePod("taken")
		}},
		step{"Uninstall", func(s *scene) {
			s.typed("how-to/uninstall.md", "helm uninstall")
			s.noPodsOf(nodeComponent)
			s.noPodsOf(controllerComponent)
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
			s.untouched(appending)
			if !s.exists(node, volumePath(added, taken)+"/file") {
				s.t.Error("uninstall removed data")
			}
		}},
		step{"ReinstallServesOldVolumes", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info")))
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.deletePod("reader")
			s.untouched(appending)
			s.deletePod("appending")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
		}},
		step{"PoolTakenOutOfTheValuesServesItsVolumes", func(s *scene) {
			if status := s.driver(node, "status"); !strings.Contains(status, added+"  ") ||
				!strings.Contains(status, "not configured") {
				s.t.Errorf("driver status does not show the pool that was taken out: %s", status)
			}
			s.said("Node", node, "PoolNotConfigured", added)
			s.output(on(node, s.pod("taken", claimed("taken"), checkData(takenSum)...)))
			s.deletePod("taken")
			command := inPod(s.driverPod(node), "pool", "forget", added)
			if out, err := s.cluster.Kubectl(s.ctx, nil, command...); err == nil ||
				!strings.Contains(err.Error(), taken) {
				s.t.Errorf("forgetting a pool with a volume was not refused for that: %v: %s", err, out)
			}
		}},
		step{"ItsVolumesAreDeletedAndItIsForgotten", func(s *scene) {
			s.remove(s.claim("taken", "", "0"))
			s.gone(taken)
			s.vanishes(node, volumePath(added, taken))
			for _, n := range s.nodes {
				s.driver(n, "pool", "forget", added)
			}
			if status := s.driver(node, "status"); strings.Contains(status, added) {
				s.t.Errorf("driver status shows a pool that was forgotten: %s", status)
			}
		}},
		step{"UninstalledAsThePageSaysNothingIsLeft", func(s *scene) {
			s.typed("how-to/uninstall.md", "helm uninstall")
			s.noPodsOf(nodeComponent)
			s.noPodsOf(controllerComponent)
			s.typed("how-to/uninstall.md", "delete --ignore-not-found")
			const kinds = "configmaps,secrets,leases,serviceaccounts,roles,rolebindings,services"
			if left := s.kubectl("get", kinds, "--namespace", namespace, "--output", "name"); left !=
				"configmap/kube-root-ca.crt\nserviceaccount/default" {
				s.t.Errorf("the namespace still has\n%s", left)
			}
			const everywhere = "storageclasses,csidrivers,clusterroles,clusterrolebindings," +
				"validatingadmissionpolicies,customresourcedefinitions"
			if left := s.kubectl("get", everywhere, "--output", "name"); strings.Contains(left, "hostpath") {
				s.t.Errorf("the cluster still has\n%s", left)
			}
		}},
		step{"WithItsDataRemovedItBeginsAnew", func(s *scene) {
			for _, n := range s.nodes {
				s.typedOnNode(n, "how-to/uninstall.md", "rm -rf")
				for _, path := range []string{pathOf(poolLocal) + "/csi", stateDir} {
					if s.exists(n, path) {
						s.t.Errorf("%s still has %s", n, path)
					}
				}
			}
			s.must(s.install(s.ctx, s.values("info")))
			s.create(s.claim("anew", classOf(poolLocal), "16Mi"))
			s.output(on(node, s.pod("anew", claimed("anew"), writeData()...)))
			s.forget("anew")
		}},
	)
}
