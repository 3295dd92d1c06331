package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestNodesWorkWithoutAController: what a kubelet asks its driver for needs no controller, also where the driver has to
// look something up.
func TestNodesWorkWithoutAController(t *testing.T) {
	node := world.workers[0]
	var user *corev1.Pod
	var volume, left string
	alone(t, "pods start and end, and drivers start, while there is no controller",
		step{"AVolumeIsInUse", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "16Mi"))
			s.create(on(node, s.pod("user", claimed("data"), appendLines()...)))
			user, volume = s.running("user"), s.bound("data").Name
		}},
		step{"TheControllerIsAway", func(s *scene) {
			s.whenDone(func(ctx context.Context) error { return s.scaleController(ctx, "1") })
			s.must(s.scaleController(s.ctx, "0"))
			s.noPodsOf(controllerComponent)
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
		}},
		step{"APodEndsAndStarts", func(s *scene) {
			s.deletePod("user")
			s.create(on(node, s.pod("user", claimed("data"), appendLines()...)))
			user = s.running("user")
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
		}},
		step{"AnInlineVolumeIsTheFirstOfItsPoolAndEndsWithItsPod", func(s *scene) {
			attributes := map[string]string{"storagePool": poolAway, "size": "16Mi"}
			s.create(on(node, s.pod("inline", inline(attributes), appendLines()...)))
			s.running("inline")
			directory := s.onNode(node, "ls -d "+pathOf(poolAway)+"/csi/csi-*")
			s.grows(node, directory+"/lines")
			s.deletePod("inline")
			s.vanishes(node, directory)
		}},
		step{"TheDriverStartsAgain", func(s *scene) {
			before := s.driverPod(node)
			s.kubectl("delete", "pod", before.Name, "--namespace", namespace, "--timeout", waitTimeout.String())
			if now := s.driverPod(node); now.UID == before.UID {
				s.t.Errorf("the driver's pod %s is the one from before", now.Name)
			}
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
			s.untouched(user)
		}},
		step{"ADirectoryWithoutARecordIsMounted", func(s *scene) {
			left = s.untracked(node, poolAway, "left", classOf(poolAway))
			s.bound("left")
			s.output(s.pod("left", claimed("left"), "write", dataDir+"/new")) // the affinity alone places it
			s.deletePod("left")
			if !s.exists(node, volumePath(poolAway, left)+"/new") {
				s.t.Error("the pod wrote somewhere else")
			}
		}},
		step{"BackItMakesAndDeletesVolumes", func(s *scene) {
			s.must(s.scaleController(s.ctx, "1"))
			s.readyControllers(1)
			s.allConnected()
			s.create(s.claim("new", classOf(poolLocal), "16Mi"))
			s.output(on(node, s.pod("new", claimed("new"), writeData()...)))
			s.adopted(node, poolAway, 1)
			s.untouched(user)
			volumes := []string{s.bound("new").Name, volume, left}
			s.kubectl("delete", "pods,persistentvolumeclaims", "--all", "--namespace", s.namespace, "--timeout", "3m")
			for _, each := range volumes {
				s.gone(each)
			}
			s.vanishes(node, volumePath(poolAway, left))
		}},
	)
}

// scaleController sets how many pods the controller has. Helm's next upgrade would set it again.
func (s *scene) scaleController(ctx context.Context, replicas string) error {
	s.t.Helper()
	out, err := s.cluster.Kubectl(ctx, nil, "scale", "deployment", controllerService, "--namespace", namespace,
		"--replicas", replicas)
	s.t.Log(strings.TrimSpace(out))
	return err
}
