package e2e

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// How many claims are made while something is wrong, how many of them have a pod before that, and how many are Bound.
const (
	manyClaims = 60
	claimsPods = manyClaims / 2
	boundFirst = 10
)

func TestClaimsWhileTheControllerIsKilled(t *testing.T) {
	alone(t, "60 claims while the controller's driver is killed in the middle: all Bound, nothing twice, nothing left",
		claimsWhile("TheControllerIsKilled", func(s *scene) {
			controller := s.readyControllers(1)[0]
			s.onNode(controller.Spec.NodeName, "pkill -KILL -f -- '[-]-mode=controller'")
			s.useMany(claimsPods, manyClaims)
			s.eventually("the controller's driver has been restarted", func() (bool, string) {
				now := s.readyControllers(1)[0]
				return now.UID == controller.UID && restarts(&now) > restarts(&controller), describe(&now)
			})
		})...)
}

func TestClaimsWhileATunnelIsCut(t *testing.T) {
	nightly(t)
	// Keepalive notices within 15 s that the connection is dead, and nodeGrace begins then.
	const cut = 20 * time.Second
	alone(t, "60 claims while a node cannot be reached for a while: all Bound, nothing twice, nothing left",
		claimsWhile("ATunnelIsCut", func(s *scene) {
			heal := s.cutTunnel(s.awayFromController())
			s.useMany(claimsPods, manyClaims)
			pause(s.ctx, cut)
			s.t.Logf("%d of %d claims were Bound after a cut of %s", s.boundClaims(), manyClaims, cut)
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
			s.askMany(classOf(poolBurst), manyClaims)
			s.useMany(0, claimsPods)
			s.eventually("some of the claims are Bound", func() (bool, string) {
				return s.boundClaims() >= boundFirst, "fewer"
			})
		}},
		{name, func(s *scene) {
			s.t.Logf("%d of %d claims were Bound just before", s.boundClaims(), manyClaims)
			happens(s)
		}},
		{"AllAreBound", func(s *scene) {
			for i := range manyClaims {
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

// askMany makes claims, each of 16 MiB, and useMany pods for some of them. All at once: this suite's own client waits
// between requests.
func (s *scene) askMany(class string, n int) {
	s.t.Helper()
	var claims []k8s.Object
	for i := range n {
		claims = append(claims, s.claim(numbered("data", i), class, "16Mi"))
	}
	s.createAll(claims)
}

func (s *scene) useMany(from, to int) {
	s.t.Helper()
	var pods []k8s.Object
	for i := from; i < to; i++ {
		name := numbered("data", i)
		pods = append(pods, anywhere(s.pod(name, claimed(name), "sleep")))
	}
	s.createAll(pods)
}

func (s *scene) createAll(objects []k8s.Object) {
	s.t.Helper()
	for _, o := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		s.must(err)
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	s.must(err)
	_, err = s.cluster.Kubectl(s.ctx, bytes.NewReader(list), "create", "--filename", "-")
	s.must(err)
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
			other = append(other, strings.Fields(s.onNode(node, "cd "+pathOf(pool)+"/csi/.hpp/trash; ls -Ad pvc-* || true"))...)
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
