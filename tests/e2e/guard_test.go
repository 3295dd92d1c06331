package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// absent waits until a pool is out of use on a node, and all who ask are told.
func (s *scene) absent(node, pool, because string) {
	s.t.Helper()
	s.said("Node", node, "PoolAbsent", pool, because)
	s.capacityBecomes(classOf(pool), node, "0", none)
	if value, ok := s.metric(node, `hpp_pool_present{pool="`+pool+`"}`); !ok || value != 0 {
		s.t.Errorf("hpp_pool_present of pool %s on %s is %g (there: %t), want 0", pool, node, value, ok)
	}
	if status := s.driver(node, "status"); !strings.Contains(status, because) {
		s.t.Errorf("driver status on %s does not say %s: %s", node, because, status)
	}
}

// present waits until a pool can be used on a node.
func (s *scene) present(node, pool string) {
	s.t.Helper()
	s.capacityBecomes(classOf(pool), node, "more than 0", some)
	s.eventually("hpp_pool_present of pool "+pool+" is 1", func() (bool, string) {
		value, ok := s.metric(node, `hpp_pool_present{pool="`+pool+`"}`)
		return ok && value == 1, "it is 0"
	})
}

func TestPoolDirectoryReplaced(t *testing.T) {
	node := world.workers[0]
	path := pathOf(poolReplaced)
	moved := path + ".moved"
	var user *corev1.Pod
	var used, doomed string
	parallel(t, "a pool directory replaced by an empty one is refused, and works again when put back",
		step{"VolumesAreInUse", func(s *scene) {
			s.create(s.claim("used", classOf(poolReplaced), "16Mi"))
			s.create(on(node, s.pod("user", claimed("used"), appendLines()...)))
			user = s.running("user")
			used = s.bound("used").Name
			s.create(s.claim("doomed", classOf(poolReplaced), "16Mi"))
			s.output(on(node, s.pod("doomed", claimed("doomed"), writeData()...)))
			doomed = s.bound("doomed").Name
			s.deletePod("doomed")
		}},
		step{"EmptyDirectoryIsRefused", func(s *scene) {
			s.onNode(node, "mv "+path+" "+moved+"; mkdir "+path)
			s.absent(node, poolReplaced, "MarkerMissing")
		}},
		step{"NothingIsMadeThere", func(s *scene) {
			s.create(s.claim("new", classOf(poolReplaced), "16Mi"))
			s.create(on(node, s.pod("new", claimed("new"), writeData()...)))
			s.said("Pod", "new", "FailedScheduling", "free storage")
			s.isPending("new")
			if left := s.list(node, path); len(left) > 0 {
				s.t.Errorf("%s holds %v", path, left)
			}
		}},
		step{"NothingIsDeclaredDeleted", func(s *scene) {
			s.remove(s.claim("doomed", "", "0"))
			s.said("PersistentVolume", doomed, "VolumeFailedDelete", poolReplaced)
			s.volumeBecomes(doomed, corev1.VolumeReleased)
			if !s.exists(node, moved+"/csi/"+doomed+"/file") {
				s.t.Error("the file of the volume to be deleted is gone")
			}
		}},
		step{"RunningPodIsUntouched", func(s *scene) {
			s.grows(node, moved+"/csi/"+used+"/lines")
			s.untouched(user)
		}},
		step{"PutBackItWorksAgain", func(s *scene) {
			s.onNode(node, "rmdir "+path+"; mv "+moved+" "+path)
			s.present(node, poolReplaced)
			s.said("Node", node, "PoolPresent", poolReplaced)
			s.phase("new", corev1.PodSucceeded)
			s.gone(doomed)
			s.vanishes(node, volumePath(poolReplaced, doomed))
			s.untouched(user)
		}},
	)
}

func TestRequireMount(t *testing.T) {
	node := world.workers[1]
	path := pathOf(poolMounted)
	var before *corev1.Pod
	var disk sharedDisk
	var sum string
	parallel(t, "a requireMount pool waits for its disk and is adopted without a restart",
		step{"AbsentWithoutADisk", func(s *scene) {
			before = s.driverPod(node)
			s.capacityBecomes(classOf(poolMounted), node, "0", none)
			if status := s.driver(node, "status"); !strings.Contains(status, "NotMounted") {
				s.t.Errorf("driver status does not say NotMounted: %s", status)
			}
			if s.exists(node, path+"/csi") {
				s.t.Errorf("%s/csi was made on the system's disk", path)
			}
			s.create(s.claim("data", classOf(poolMounted), "16Mi"))
			s.create(on(node, s.pod("writer", claimed("data"), writeData()...)))
			s.said("Pod", "writer", "FailedScheduling", "free storage")
		}},
		step{"MountedDiskIsAdopted", func(s *scene) {
			disk = s.makeDisk(poolMounted, "256M", path)
			s.mountShared(disk, node)
			s.present(node, poolMounted)
			s.said("Node", node, "PoolPresent", poolMounted)
			s.phase("writer", corev1.PodSucceeded)
			sum = firstWord(s.logs(s.namespace, "writer"))
			s.deletePod("writer")
		}},
		step{"DriverWasNotRestarted", func(s *scene) {
			s.untouchedDriver(node, before)
		}},
		step{"UnmountedDiskIsNoticed", func(s *scene) {
			s.unmountDisk(node, path)
			s.absent(node, poolMounted, "MarkerMissing")
			s.mountShared(disk, node)
			s.present(node, poolMounted)
		}},
		step{"ItMovesToAnotherNode", func(s *scene) { s.diskMoves(disk, node, world.workers[0], sum) }},
	)
}

// diskMoves goes through docs/how-to/move-a-disk.md with the claim data, whose file has a sum.
func (s *scene) diskMoves(disk sharedDisk, from, to, sum string) {
	s.t.Helper()
	const page = "how-to/move-a-disk.md"
	volume := s.bound("data").Name
	if listed := s.typed(page, "--node OLD", "OLD", from); !strings.Contains(listed, volume) {
		s.t.Errorf("no %s is listed:\n%s", volume, listed)
	}
	s.typed(page, `:"Retain"`, "PV", volume)
	s.typed(page, "delete pv", "NAMESPACE", s.namespace, "CLAIM", "data", "PV", volume)
	s.unmountDisk(from, disk.path)
	s.absent(from, poolMounted, "MarkerMissing")
	s.mountShared(disk, to)
	s.present(to, poolMounted)
	s.typed(page, "pool forget", "POOL", poolMounted, "OLD", from+" --yes")
	s.typed(page, "adopt", "ID", volume, "NEW", to, "CLASS", classOf(poolMounted))
	if got := s.nodeOf(s.bound("data")); got != to {
		s.t.Errorf("the volume is on %s, its disk on %s", got, to)
	}
	s.output(s.pod("reader", claimed("data"), checkData(sum)...))
	s.deletePod("reader")
	s.typed(page, `:"Delete"`, "ID", volume)
	s.remove(s.claim("data", "", "0"))
	s.gone(volume)
	s.vanishes(to, volumePath(poolMounted, volume))
}

// untouchedDriver checks that the driver's pod on a node has run on.
func (s *scene) untouchedDriver(node string, before *corev1.Pod) {
	s.t.Helper()
	now := s.driverPod(node)
	if now.UID != before.UID || restarts(now) != restarts(before) {
		s.t.Errorf("the driver on %s did not run on: pod %s is now %s, %d restarts are now %d",
			node, before.Name, now.Name, restarts(before), restarts(now))
	}
}

func TestDiskMountedOverAPool(t *testing.T) {
	node := world.workers[1]
	path := pathOf(poolCovered)
	var sum, old string
	parallel(t, "a disk mounted over an adopted pool makes it absent until unmounted, or until pool forget",
		step{"PoolHoldsAVolume", func(s *scene) {
			s.create(s.claim("old", classOf(poolCovered), "16Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("old"), writeData()...))))
			old = s.bound("old").Name
			s.deletePod("writer")
		}},
		step{"CoveredPoolIsAbsent", func(s *scene) {
			s.mountDisk(node, poolCovered, "256M", path)
			s.absent(node, poolCovered, "MarkerMissing")
			if s.exists(node, path+"/csi") {
				s.t.Error("csi/ was made on a disk that nobody said is the pool's")
			}
			s.create(on(node, s.pod("waiting", claimed("old"), checkData(sum)...)))
			s.said("Pod", "waiting", "FailedMount", poolCovered)
		}},
		step{"UnmountedItIsPresentAgain", func(s *scene) {
			s.unmountDisk(node, path)
			s.present(node, poolCovered)
			s.phase("waiting", corev1.PodSucceeded)
			s.deletePod("waiting")
		}},
		step{"ForgottenItIsAdoptedAnew", func(s *scene) {
			s.remountDisk(node, poolCovered, path)
			s.capacityBecomes(classOf(poolCovered), node, "0", none)
			s.typedLine("how-to/replace-a-disk.md", "pool forget", "ssd", poolCovered, "NODE", node+" --yes")
			s.present(node, poolCovered)
			s.create(s.claim("new", classOf(poolCovered), "16Mi"))
			s.output(on(node, s.pod("new", claimed("new"), writeData()...)))
			volume := s.bound("new").Name
			if !s.exists(node, volumePath(poolCovered, volume)+"/file") ||
				s.exists(node, volumePath(poolCovered, old)) {
				s.t.Error("the new volume is not on the new disk, or the old one is")
			}
			s.deletePod("new")
			s.remove(s.claim("new", "", "0"))
			s.gone(volume)
		}},
		step{"OldDirectoryComesBackTheSameWay", func(s *scene) {
			s.unmountDisk(node, path)
			s.absent(node, poolCovered, "MarkerDiffers")
			s.driver(node, "pool", "forget", poolCovered)
			s.present(node, poolCovered)
			s.output(on(node, s.pod("reader", claimed("old"), checkData(sum)...)))
			s.deletePod("reader")
			s.remove(s.claim("old", "", "0"))
			s.gone(old)
			s.vanishes(node, volumePath(poolCovered, old))
		}},
		step{"PresentPoolIsNotForgotten", func(s *scene) {
			command := inPod(s.driverPod(node), "pool", "forget", poolCovered)
			if out, err := s.cluster.Kubectl(s.ctx, nil, command...); err == nil {
				s.t.Errorf("forgot a pool that is present: %s", out)
			} else if !strings.Contains(err.Error(), "present") {
				s.t.Errorf("the refusal does not say why: %v", err)
			}
		}},
	)
}
