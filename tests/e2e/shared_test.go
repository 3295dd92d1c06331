package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// sharedClaims are made while nodes and the controller fail.
const sharedClaims = 20

// writableByMany makes a claim one that pods on all nodes may write to.
func writableByMany(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	return c
}

// sharedVolumes are the ids of the volumes in a shared pool, as a node sees them.
func (s *scene) sharedVolumes(node string) []string {
	s.t.Helper()
	return slices.DeleteFunc(s.list(node, pathOf(poolShared)+"/csi"), func(name string) bool { return name == ".hpp" })
}

// everyRoomIsEmpty waits until no node has anything in its part of a shared pool's staging and trash.
func (s *scene) everyRoomIsEmpty(path string) {
	s.t.Helper()
	s.eventually("staging and trash of all nodes are empty", func() (bool, string) {
		left := s.onNode(s.workers[0],
			"cd "+path+"/csi/.hpp; find staging trash -mindepth 2 ! -name .spare")
		return left == "", left
	})
}

func TestSharedPool(t *testing.T) {
	first, second := world.workers[0], world.workers[1]
	path := pathOf(poolShared)
	var disk sharedDisk
	var used string
	var many []string // volumes
	var user *corev1.Pod
	alone(t, "a filesystem that all nodes have is one pool: everybody's volumes, safe when nodes fail",
		step{"AllNodesHaveThePool", func(s *scene) {
			disk = s.shareDisk("shared-pool", "256M", path)
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
			s.must(s.install(s.ctx, s.values("info", pool{Name: poolShared, Path: path, Scope: "shared"})))
			for _, node := range s.nodes {
				s.present(node, poolShared)
			}
			s.sameCapacityEverywhere()
		}},
		step{"PodsOnTwoNodesReadEachOthersFiles", func(s *scene) {
			s.create(writableByMany(s.claim("data", classOf(poolShared), "64Mi")))
			sum := firstWord(s.output(on(first, s.pod("writer", claimed("data"), writeData()...))))
			pv := s.bound("data")
			used = pv.Name
			if pv.Spec.NodeAffinity != nil {
				s.t.Errorf("the volume is tied to %v", pv.Spec.NodeAffinity)
			}
			s.output(on(second, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.create(on(second, s.pod("user", claimed("data"), appendLines()...)))
			user = s.running("user")
			s.grows(first, path+"/csi/"+used+"/lines")
		}},
		step{"ClaimsWhileNodesAndTheControllerFail", func(s *scene) {
			s.askMany(classOf(poolShared), sharedClaims)
			s.useMany(0, sharedClaims)
			s.onNode(second, "pkill -STOP -f -- '[-]-host-root='")
			s.onNode(first, "pkill -KILL -f -- '[-]-host-root='")
			controller := s.readyControllers(1)[0]
			s.kubectl("delete", "pod", controller.Name, "--namespace", namespace, "--grace-period=0", "--force")
			s.readyControllers(1)
			s.nodeIs(second, notConnected)
			s.onNode(second, "pkill -CONT -f -- '[-]-host-root='")
			s.nodeIs(second, connected)
			for i := range sharedClaims {
				many = append(many, s.bound(numbered("data", i)).Name)
			}
			volumes := append([]string{used}, many...)
			slices.Sort(volumes)
			if there := s.sharedVolumes(first); !slices.Equal(there, volumes) {
				s.t.Errorf("in the pool are %v, bound are %v", there, volumes)
			}
			s.untouched(user)
		}},
		step{"AllGoAgain", func(s *scene) {
			names := []string{"--namespace", s.namespace}
			for i := range sharedClaims {
				names = append(names, numbered("data", i))
			}
			s.kubectl(append([]string{"delete", "pods"}, names...)...)
			s.kubectl(append([]string{"delete", "persistentvolumeclaims"}, names...)...)
			s.eventually("only the volume in use is left", func() (bool, string) {
				there := s.sharedVolumes(second)
				return slices.Equal(there, []string{used}), strings.Join(there, " ")
			})
			s.everyRoomIsEmpty(path)
			for _, volume := range many { // which could not be deleted with the pool absent on a node
				s.gone(volume)
			}
		}},
		step{"ANodeWithoutTheFilesystemRefuses", func(s *scene) {
			s.deletePod("user")
			s.unmountDisk(second, path)
			s.absent(second, poolShared, "MarkerMissing")
			s.create(on(second, s.pod("blind", claimed("data"), writeData()...)))
			s.said("Pod", "blind", "FailedMount", poolShared)
			s.create(s.claim("new", classOf(poolShared), "16Mi"))
			s.create(on(second, s.pod("new", claimed("new"), writeData()...)))
			s.said("Pod", "new", "FailedScheduling", "free storage")
			if left := s.list(second, path); len(left) > 0 {
				s.t.Errorf("on the node's own disk %s has %v", path, left)
			}
			s.output(on(first, s.pod("elsewhere", claimed("data"), writeData()...)))
		}},
		step{"AndSoDoesOneWithAnotherFilesystem", func(s *scene) {
			s.mountDisk(second, "not-shared", "64M", path)
			s.said("Node", second, "PoolAbsent", poolShared, "MarkerMissing")
			s.stays("the pool is absent with another filesystem", func() (bool, string) {
				value, ok := s.metric(second, `hpp_pool_present{pool="`+poolShared+`"}`)
				return ok && value == 0, "it is present"
			})
			if left := s.list(second, path); !slices.Equal(left, []string{"lost+found"}) {
				s.t.Errorf("the other filesystem has %v", left)
			}
			s.unmountDisk(second, path)
		}},
		step{"MountedAgainItGoesOn", func(s *scene) {
			s.mountShared(disk, second)
			s.present(second, poolShared)
			s.phase("blind", corev1.PodSucceeded)
			s.phase("new", corev1.PodSucceeded)
		}},
		step{"DeletedItIsGoneOnAllNodes", func(s *scene) {
			for _, pod := range []string{"writer", "reader", "blind", "elsewhere", "new"} {
				s.deletePod(pod)
			}
			made := s.bound("new").Name
			s.remove(s.claim("data", "", "0"))
			s.remove(s.claim("new", "", "0"))
			s.gone(used)
			s.gone(made)
			for _, node := range s.nodes {
				s.vanishes(node, path+"/csi/"+used)
			}
			s.everyRoomIsEmpty(path)
			s.restoreRelease(poolShared) // else no other volume that is nowhere could be deleted
		}},
	)
}

// sameCapacityEverywhere waits until the capacity objects of the shared pool show one number.
func (s *scene) sameCapacityEverywhere() {
	s.t.Helper()
	s.eventually("all nodes show one capacity of the shared pool", func() (bool, string) {
		all, err := s.capacities(classOf(poolShared))
		if err != nil || len(all) != len(s.nodes) {
			return false, "not all nodes have one"
		}
		first := all[s.nodes[0]]
		return first > 0 && !slices.ContainsFunc(s.nodes, func(node string) bool { return all[node] != first }), ""
	})
}

func TestSharedPoolTakenAndReplaced(t *testing.T) {
	nightly(t)
	const page = "how-to/shared-pool.md"
	const otherCluster = "0f6c9b1e-0000-4000-8000-1b2c3d4e5f60" // as the page has it
	node, path := world.workers[0], pathOf(poolTaken)
	var sum, volume string
	alone(t, "a shared pool of another cluster is taken, and a filesystem in the place of another made known",
		step{"Used", func(s *scene) {
			s.shareDisk("taken-pool", "256M", path)
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
			s.must(s.install(s.ctx, s.values("info", pool{Name: poolTaken, Path: path, Scope: "shared"})))
			s.present(node, poolTaken)
			s.create(writableByMany(s.claim("data", classOf(poolTaken), "64Mi")))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
		}},
		step{"OfAnotherClusterItIsAbsent", func(s *scene) {
			s.onNode(node, `sed -i 's/"owner": *"[^"]*"/"owner":"`+otherCluster+`"/' `+path+"/csi/.hpp/pool.json")
			s.absent(node, poolTaken, "OtherCluster")
		}},
		step{"TakenItServesItsVolumes", func(s *scene) {
			s.typed(page, "pool take", "nfs", poolTaken, "NODE", node+" --yes")
			for _, node := range s.nodes {
				s.present(node, poolTaken)
			}
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
		}},
		step{"AnotherFilesystemIsRefused", func(s *scene) {
			s.deletePod("writer")
			s.deletePod("reader")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			for _, node := range s.nodes {
				s.unmountDisk(node, path)
			}
			s.shareDisk("replacing-pool", "256M", path)
			s.absent(node, poolTaken, "MarkerMissing")
		}},
		step{"OnceTheOldOneIsForgottenItIsThePool", func(s *scene) {
			s.typed(page, "pool forget", "nfs", poolTaken)
			for _, node := range s.nodes {
				s.present(node, poolTaken)
			}
			s.create(s.claim("new", classOf(poolTaken), "16Mi"))
			s.output(on(s.workers[1], s.pod("new", claimed("new"), writeData()...)))
			s.forget("new") // before its filesystem goes
			s.restoreRelease(poolTaken)
		}},
	)
}
