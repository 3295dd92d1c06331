package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// States of a node as the controller gives them.
const (
	connected    = "connected"
	notConnected = "not connected"
)

// selectedNode is the annotation by which the scheduler asks for a volume on a node.
const selectedNode = "volume.kubernetes.io/selected-node"

// tunnelPort is where nodes reach the controller.
const tunnelPort = 7443

// controllers are the controller's pods that are not being deleted.
func (s *scene) controllers() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	s.must(s.api.List(s.ctx, &list, resources.WithLabelSelector(componentLabel+"="+controllerComponent)))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// readyControllers waits until the controller has so many pods, and all are ready.
func (s *scene) readyControllers(want int) (pods []corev1.Pod) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d pods of the controller are ready", want), func() (bool, string) {
		var instead []string
		pods = s.controllers()
		for _, p := range pods {
			if !isReady(&p) {
				instead = append(instead, p.Name+": "+describe(&p))
			}
		}
		return len(pods) == want && instead == nil, fmt.Sprintf("%d pods, not ready: %v", len(pods), instead)
	})
	return pods
}

// awayFromController is a worker that does not run the controller.
func (s *scene) awayFromController() string {
	s.t.Helper()
	taken := s.readyControllers(1)[0].Spec.NodeName
	return s.workers[slices.IndexFunc(s.workers, func(node string) bool { return node != taken })]
}

// nodeIs waits until each pod of the controller says that a node is in a state.
func (s *scene) nodeIs(node, want string) {
	s.t.Helper()
	s.eventually("for the controller "+node+" is "+want, func() (bool, string) {
		pods := s.controllers()
		for _, p := range pods {
			if state, err := s.nodeState(&p, node); state != want {
				return false, fmt.Sprintf("%s says %q, %v", p.Name, state, err)
			}
		}
		return len(pods) > 0, "it has no pod"
	})
}

func (s *scene) nodeState(controller *corev1.Pod, node string) (string, error) {
	out, err := s.cluster.Kubectl(s.ctx, nil, inPod(controller, "status", "--output", "json")...)
	if err != nil {
		return "", err
	}
	var status struct {
		Nodes []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return "", err
	}
	for _, n := range status.Nodes {
		if n.Name == node {
			return n.State, nil
		}
	}
	return "", errors.New("it does not know the node")
}

// allConnected waits until the controller reaches every node.
func (s *scene) allConnected() {
	s.t.Helper()
	for _, node := range s.nodes {
		s.nodeIs(node, connected)
	}
}

// cutTunnel stops what a node's driver and the controller send each other, until heal.
func (s *scene) cutTunnel(node string) (heal func(s *scene)) {
	s.t.Helper()
	pod := s.driverPod(node).Status.PodIP
	rules := func(do, otherwise string) string {
		return fmt.Sprintf("iptables -%[1]s FORWARD -s %[2]s -p tcp --dport %[3]d -j DROP %[4]s\n"+
			"iptables -%[1]s FORWARD -d %[2]s -p tcp --sport %[3]d -j DROP %[4]s\n", do, pod, tunnelPort, otherwise)
	}
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", rules("D", "2>/dev/null || true"))
		return err
	})
	s.onNode(node, rules("I", ""))
	return func(s *scene) { s.onNode(node, rules("D", "")) }
}

// seconds says how long something took.
func seconds(begin time.Time) string { return fmt.Sprintf("%.1f s", time.Since(begin).Seconds()) }

func TestNodeThatCannotReachTheController(t *testing.T) {
	var node, doomed string
	var user *corev1.Pod
	var heal func(s *scene)
	lines := func(s *scene) string { return volumePath(poolLocal, s.bound("data").Name) + "/lines" }
	alone(t, "pods run and start on a node that cannot reach the controller, and claims for it keep no others waiting",
		step{"VolumesAreInUse", func(s *scene) {
			// Its grace is never over, so that what waits for it goes on waiting.
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
			s.must(s.install(s.ctx, s.valuesWith(map[string]any{"nodeGrace": "1h"})))
			node = s.awayFromController()
			s.nodeIs(node, connected)
			s.create(s.claim("data", classOf(poolLocal), "16Mi"))
			s.create(on(node, s.pod("user", claimed("data"), appendLines()...)))
			s.create(s.claim("doomed", classOf(poolLocal), "16Mi"))
			s.output(on(node, s.pod("doomed", claimed("doomed"), writeData()...)))
			s.deletePod("doomed")
			doomed = s.bound("doomed").Name
			user = s.running("user")
		}},
		step{"TheTunnelIsCut", func(s *scene) {
			begin := time.Now()
			heal = s.cutTunnel(node)
			s.nodeIs(node, notConnected)
			s.t.Logf("noticed after %s", seconds(begin))
			s.grows(node, lines(s))
			s.untouched(user)
		}},
		step{"ManyClaimsForItKeepNoOtherWaiting", func(s *scene) { s.manyWaitFor(node) }},
		step{"TheDriverStartsAgainWithoutIt", func(s *scene) {
			s.killDriver(node)
			s.grows(node, lines(s))
			s.untouched(user)
		}},
		step{"ThePodStartsAgainWithoutIt", func(s *scene) {
			s.deletePod("user")
			s.create(on(node, s.pod("user", claimed("data"), appendLines()...)))
			user = s.running("user")
			s.grows(node, lines(s))
		}},
		step{"WhatNeedsTheControllerWaits", func(s *scene) {
			s.remove(s.claim("doomed", "", "0"))
			s.said("PersistentVolume", doomed, "VolumeFailedDelete", node)
			s.create(s.claim("new", classOf(poolLocal), "16Mi"))
			s.create(on(node, s.pod("new", claimed("new"), writeData()...)))
			s.said("Pod", "new", "FailedScheduling", "free storage")
			s.isPending("new")
		}},
		step{"HealedItGoesOn", func(s *scene) {
			begin := time.Now()
			heal(s)
			s.nodeIs(node, connected)
			s.t.Logf("connected %s after the cut was healed", seconds(begin))
			s.phase("new", corev1.PodSucceeded)
			s.gone(doomed)
			s.vanishes(node, volumePath(poolLocal, doomed))
			s.untouched(user)
		}},
	)
}

// killDriver ends the driver on a node that does not run the controller, and waits until it runs again. It does so not
// by the pod: the process gets no chance to clean up.
func (s *scene) killDriver(node string) {
	s.t.Helper()
	before := s.driverPod(node)
	s.onNode(node, "pkill -KILL -f -- '[-]-host-root='")
	s.eventually("the driver has been restarted", func() (bool, string) {
		now := s.driverPod(node)
		return restarts(now) > restarts(before), describe(now)
	})
}

func TestTwoControllers(t *testing.T) {
	nightly(t)
	const claims = 10
	var volumes []string
	alone(t, "of two controllers the one that leads is killed, and claims are bound all the same",
		step{"TheReleaseHasTwo", func(s *scene) {
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
			s.must(s.install(s.ctx, s.valuesWith(map[string]any{"replicas": 2})))
			s.readyControllers(2)
			s.allConnected()
		}},
		step{"TheLeaderIsKilled", func(s *scene) {
			leader := s.leader()
			s.kubectl("delete", "pod", leader, "--namespace", namespace, "--grace-period=0", "--force")
			begin := time.Now()
			s.askMany(classOf(poolLocal), claims)
			s.useMany(0, claims)
			for i := range claims {
				volumes = append(volumes, s.bound(numbered("data", i)).Name)
			}
			s.t.Logf("%d claims were Bound %s after pod %s, the leader, was killed", claims, seconds(begin), leader)
		}},
		step{"BackToOne", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info")))
			s.readyControllers(1)
			s.allConnected()
			s.create(s.claim("after", classOf(poolLocal), "16Mi"))
			s.output(s.pod("after", claimed("after"), writeData()...))
			volumes = append(volumes, s.bound("after").Name)
		}},
		step{"AllGoAgain", func(s *scene) {
			s.kubectl("delete", "pods,persistentvolumeclaims", "--all", "--namespace", s.namespace, "--timeout", "3m")
			for _, volume := range volumes {
				s.gone(volume)
			}
		}},
	)
}

// leader is the controller's pod whose csi-provisioner works.
func (s *scene) leader() (pod string) {
	s.t.Helper()
	s.eventually("a pod of the controller leads", func() (bool, string) {
		var leases coordinationv1.LeaseList
		if err := s.api.List(s.ctx, &leases); err != nil {
			return false, err.Error()
		}
		var heard []string
		for _, lease := range leases.Items {
			if lease.Namespace != namespace || lease.Spec.HolderIdentity == nil {
				continue
			}
			pod = *lease.Spec.HolderIdentity
			isIt := func(p corev1.Pod) bool { return p.Name == pod }
			if lease.Name == strings.ReplaceAll(driverName, ".", "-") && slices.ContainsFunc(s.controllers(), isIt) {
				return true, ""
			}
			heard = append(heard, lease.Name+": "+pod)
		}
		return false, strings.Join(heard, ", ")
	})
	return pod
}
