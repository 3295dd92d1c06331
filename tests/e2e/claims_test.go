package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// manyClaims is how many claims are made while something is wrong, half of which have a pod before that. boundFirst of
// them are Bound then.
func manyClaims() int {
	if world.nightly {
		return 60
	}
	return 20
}

const boundFirst = 5

func TestClaimsWhileTheControllerIsKilled(t *testing.T) {
	alone(t,
		"many claims while the controller is killed in the middle: all Bound, nothing twice, nothing left",
		claimsWhile("TheControllerIsKilled", func(s *scene) {
			controller := s.readyControllers(1)[0]
			s.onNode(controller.Spec.NodeName, "pkill -KILL -f -- '[-]-tunnel-address='")
			s.useMany(manyClaims()/2, manyClaims())
			s.eventually("the controller has been restarted", func() (bool, string) {
				now := s.readyControllers(1)[0]
				return now.UID == controller.UID && restarts(&now) > restarts(&controller), describe(&now)
			})
		})...)
}

func TestClaimsWhileATunnelIsCut(t *testing.T) {
	nightly(t)
	alone(t, "many claims while a node cannot be reached for a while: all Bound, nothing twice, nothing left",
		claimsWhile("ATunnelIsCut", func(s *scene) {
			node := s.awayFromController()
			heal := s.cutTunnel(node)
			s.useMany(manyClaims()/2, manyClaims())
			s.nodeIs(node, notConnected)
			s.t.Logf("%d of %d claims were Bound when the controller had noticed", s.boundClaims(), manyClaims())
			heal(s)
		})...)
}

// claimsWhile are the steps of many claims while something goes wrong, which has to make the other half of their pods.
func claimsWhile(name string, happens func(s *scene)) []step {
	var begin time.Time
	var volumes []string
	return []step{
		{"SomeAreBound", func(s *scene) {
			begin = time.Now()
			s.askMany(classOf(poolBurst), manyClaims())
			s.useMany(0, manyClaims()/2)
			s.eventually("some of the claims are Bound", func() (bool, string) {
				return s.boundClaims() >= boundFirst, "fewer"
			})
		}},
		{name, func(s *scene) {
			s.t.Logf("%d of %d claims were Bound just before", s.boundClaims(), manyClaims())
			happens(s)
		}},
		{"AllAreBound", func(s *scene) {
			for i := range manyClaims() {
				volumes = append(volumes, s.bound(numbered("data", i)).Name)
			}
			slices.Sort(volumes)
			s.t.Logf("all were Bound after %s", seconds(begin))
		}},
		{"EachVolumeIsThereOnce", func(s *scene) { s.thereOnce(poolBurst, volumes) }},
		{"AllGoAgain", func(s *scene) {
			s.kubectl("delete", "pods,persistentvolumeclaims", "--all", "--namespace", s.namespace, "--timeout", "3m")
			for _, volume := range volumes {
				s.gone(volume)
			}
			s.thereOnce(poolBurst, nil)
		}},
	}
}

// askMany makes claims, each of 16 MiB, and useMany pods for some of them.
func (s *scene) askMany(class string, n int) {
	s.t.Helper()
	for i := range n {
		s.create(s.claim(numbered("data", i), class, "16Mi"))
	}
}

func (s *scene) useMany(from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		name := numbered("data", i)
		s.create(anywhere(s.pod(name, claimed(name), "sleep")))
	}
}

// waitingClaims are more than csi-provisioner works on at once, which is 100.
const waitingClaims = 120

// manyWaitFor makes more claims for a node that is not connected than are worked on at once, and then one for another
// node, which is served while all of the others wait.
func (s *scene) manyWaitFor(node string) {
	s.t.Helper()
	for i := range waitingClaims {
		s.create(annotated(s.claim(numbered("waits", i), classOf(poolBurst), "16Mi"), selectedNode, node))
	}
	begin := time.Now()
	s.create(s.claim("other", classOf(poolBurst), "16Mi"))
	s.output(on(s.readyControllers(1)[0].Spec.NodeName, s.pod("other", claimed("other"), writeData()...)))
	s.t.Logf("with %d claims before it a claim was used after %s", waitingClaims, seconds(begin))
	for i := range waitingClaims {
		claim := s.claim(numbered("waits", i), "", "0")
		s.must(s.api.Get(s.ctx, claim.Name, s.namespace, claim))
		if claim.Status.Phase != corev1.ClaimPending || claim.Annotations[selectedNode] != node {
			s.t.Errorf("claim %s no longer waits for %s: %s, %v", claim.Name, node, claim.Status.Phase,
				claim.Annotations)
		}
	}
	// The last of them was asked for too, so that they have not just lain there.
	s.said("PersistentVolumeClaim", numbered("waits", waitingClaims-1), "ProvisioningFailed",
		"node "+node+" is not connected")
	for i := range waitingClaims {
		s.remove(s.claim(numbered("waits", i), "", "0"))
	}
	s.controllerForgets(node)
}

// controllerForgets makes the usual release again, whose new csi-provisioner does not go on with claims that are gone,
// as the old one would. Its pod stays away from a node.
func (s *scene) controllerForgets(node string) {
	s.t.Helper()
	s.cordon(node)
	s.must(s.install(s.ctx, s.values("info")))
	s.kubectl("uncordon", node)
	s.nodeIs(node, notConnected)
}

func (s *scene) boundClaims() (n int) {
	s.t.Helper()
	var list corev1.PersistentVolumeClaimList
	s.must(s.api.List(s.ctx, &list, resources.WithFieldSelector("metadata.namespace="+s.namespace)))
	for _, c := range list.Items {
		if c.Status.Phase == corev1.ClaimBound {
			n++
		}
	}
	return n
}

// thereOnce waits until a pool has just these volumes on all nodes together, each with its record, and nothing is half
// made or half removed.
func (s *scene) thereOnce(pool string, volumes []string) {
	s.t.Helper()
	s.eventually("nodes have these volumes alone: "+strings.Join(volumes, " "), func() (bool, string) {
		var data, records, other []string
		for _, node := range s.nodes {
			for _, name := range s.list(node, pathOf(pool)+"/csi") {
				if name != ".hpp" {
					data = append(data, name)
				}
			}
			for _, name := range s.list(node, pathOf(pool)+"/csi/.hpp/volumes") {
				records = append(records, strings.TrimSuffix(name, ".json"))
			}
			other = append(other, s.list(node, pathOf(pool)+"/csi/.hpp/staging")...)
			other = append(other,
				strings.Fields(s.onNode(node, "cd "+pathOf(pool)+"/csi/.hpp/trash; ls -Ad pvc-* || true"))...)
		}
		slices.Sort(data)
		slices.Sort(records)
		ok := slices.Equal(data, volumes) && slices.Equal(records, volumes) && len(other) == 0
		return ok, strings.Join([]string{
			"directories " + strings.Join(data, " "), "records " + strings.Join(records, " "),
			"staging and trash " + strings.Join(other, " "),
		}, "\n")
	})
}
