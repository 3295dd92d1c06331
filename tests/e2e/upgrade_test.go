package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
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

// perNodeTag is the tag of the image of the last release with csi-provisioner on every node and csi-resizer in a
// Deployment (commit 2ef9372).
const perNodeTag = "0.0.1-e2e"

// installPerNode replaces the suite's release by that one.
func (s *scene) installPerNode() {
	s.t.Helper()
	tree, images := s.earlier("per-node-release.tar.gz", perNodeTag, "driver")
	values := s.values("info")
	delete(values, "controller")
	delete(values, "mounter")
	pools := slices.DeleteFunc(basePools(), func(p pool) bool { return p.SharedAccess }) // it does not know that
	values["storagePools"], values["storageClasses"] = pools, classesFor(pools)
	driver, _ := values["driver"].(map[string]any)
	driver["image"] = images["driver"]
	s.installEarlier(tree, values)
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

// noCapacityOfNodes waits until no capacity object is left that a csi-provisioner on a node has published.
func (s *scene) noCapacityOfNodes() {
	s.t.Helper()
	s.eventually("all capacity objects are the controller's", func() (bool, string) {
		left, err := s.capacityOfNodes()
		return err == nil && len(left) == 0, fmt.Sprintf("%v, %v", left, err)
	})
}

func (s *scene) capacityOfNodes() (names []string, err error) {
	var list storagev1.CSIStorageCapacityList
	err = s.api.List(s.ctx, &list, resources.WithLabelSelector("csi.storage.k8s.io/drivername="+driverName))
	for _, c := range list.Items {
		if strings.HasPrefix(c.Labels["csi.storage.k8s.io/managed-by"], "external-provisioner-") {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// nothingPerNodeIsLeft checks what an upgrade from a release with csi-provisioner on every node has removed.
func (s *scene) nothingPerNodeIsLeft() {
	s.t.Helper()
	s.noCapacityOfNodes()
	s.noPodsOf("csi-resizer")
	var deployment appsv1.Deployment
	if err := s.api.Get(s.ctx, fullName+"-csi-resizer", namespace, &deployment); !apierrors.IsNotFound(err) {
		s.t.Errorf("Deployment %s-csi-resizer: %v", fullName, err)
	}
	s.eventually("both sidecars' leases are the controller's", func() (bool, string) {
		var leases coordinationv1.LeaseList
		err := s.api.List(s.ctx, &leases)
		ours := 0
		for _, lease := range leases.Items {
			if lease.Namespace != namespace ||
				!strings.HasSuffix(lease.Name, strings.ReplaceAll(driverName, ".", "-")) {
				continue // the operator's, or Kubernetes' own
			}
			if holder := lease.Spec.HolderIdentity; holder == nil ||
				!strings.HasPrefix(*holder, controllerService+"-") {
				return false, fmt.Sprintf("%s: %+v", lease.Name, lease.Spec)
			}
			ours++
		}
		return ours == 2, fmt.Sprintf("%d leases, %v", ours, err)
	})
	for _, n := range s.nodes {
		if containers := s.driverPod(n).Spec.Containers; len(containers) != 1 {
			s.t.Errorf("the driver's pod on %s has %d containers, want one", n, len(containers))
		}
	}
}

// growsHalf lets a claim without a pod grow in a release that leaves the end of it to the kubelet.
func (s *scene) growsHalf(claim, size string) {
	s.t.Helper()
	s.ask(claim, size)
	s.eventually("the growth of claim "+claim+" waits for a mount", func() (bool, string) {
		var pvc corev1.PersistentVolumeClaim
		err := s.api.Get(s.ctx, claim, s.namespace, &pvc)
		waits := func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
		}
		return slices.ContainsFunc(pvc.Status.Conditions, waits), fmt.Sprintf("%v, %v", pvc.Status.Conditions, err)
	})
}

func TestUpgradeAndReinstall(t *testing.T) {
	nightly(t)
	const added = "added"
	node := world.workers[0]
	extra := pool{Name: added, Path: pathOf(added)}
	var sum, volume, taken, takenSum string
	var appending *corev1.Pod
	replacing(t, "volumes outlive the upgrade from a driver per node, helm uninstall and reinstall",
		step{"TheReleaseHasAProvisionerPerNode", func(s *scene) {
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
			s.installPerNode()
			s.eventually("each node publishes its capacity", func() (bool, string) {
				names, err := s.capacityOfNodes()
				return len(names) > 0, fmt.Sprint(err)
			})
		}},
		step{"VolumesAreInUse", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "64Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.deletePod("writer")
			s.create(on(node, s.pod("appending", claimed("data"), appendLines()...)))
			appending = s.running("appending")
			s.create(s.claim("half", classOf(poolSecond), "16Mi"))
			s.output(on(node, s.pod("half", claimed("half"), writeData()...)))
			s.deletePod("half")
			s.growsHalf("half", "32Mi")
		}},
		step{"UpgradeWithNewValues", func(s *scene) {
			before := map[string]*corev1.Pod{}
			for _, n := range s.nodes {
				before[n] = s.driverPod(n)
			}
			s.must(s.install(s.ctx, s.values("debug", extra)))
			for _, n := range s.nodes {
				if now := s.driverPod(n); now.UID == before[n].UID {
					s.t.Errorf("the driver's pod on %s was not replaced: it does not have the new pools", n)
				}
			}
		}},
		step{"NothingPerNodeIsLeft", func(s *scene) {
			s.allConnected()
			s.nothingPerNodeIsLeft()
		}},
		step{"HalfGrownClaimIsFinished", func(s *scene) {
			s.create(on(node, s.pod("half", claimed("half"), writeData()...)))
			s.phase("half", corev1.PodSucceeded)
			s.given("half", "32Mi")
			s.recorded(node, poolSecond, "half", 32*mebibyte)
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
			s.must(s.uninstall(s.ctx))
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
			command := inDriver(s.driverPod(node), "pool", "forget", added)
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
	)
}
