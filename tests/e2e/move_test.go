package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// TestMove: a StatefulSet's volume goes to another worker while the plugin, the controller and both drivers are killed,
// and the claim is the same.
func TestMove(t *testing.T) {
	const bytes = "201326592" // takes some seconds to copy
	var from, to, sum, volume string
	var claim *corev1.PersistentVolumeClaim
	var again *process.Process
	alone(t, "a volume moves to another node while the plugin, the controller and both drivers are killed",
		step{"AStatefulSetHasData", func(s *scene) {
			from, to = s.workers[0], s.workers[1]
			s.create(s.claim("data", classOf(poolLocal), "256Mi"))
			writer := s.pod("writer", claimed("data"), "write", dataDir+"/file", "--bytes", bytes)
			sum = firstWord(s.output(on(from, writer)))
			s.deletePod("writer")
			volume, claim = s.bound("data").Name, s.claimNow("data")
			s.create(s.statefulSet("db", s.pod("db", claimed("data"), appendLines()...)))
			s.running("db-0")
		}},
		step{"ItIsPlannedAndGivenUp", func(s *scene) {
			m := s.move("start", volume, "--to", to, "--dry-run")
			if m.From != from || !m.Published || len(m.Problems) > 0 {
				s.t.Errorf("planned: %+v", m)
			}
			s.move("start", volume, "--to", to)
			s.typed("how-to/move-a-volume.md", "--abort", "CLAIM", "data", "NAMESPACE", s.namespace)
			s.moveIs(volume, "")
			s.said("PersistentVolumeClaim", "data", "VolumeStays", "stays on node "+from)
		}},
		step{"PluginAndSourcesDriverAreKilledOnceItIsMarked", func(s *scene) {
			budget := s.disruptionBudget("db")
			s.create(budget)
			moving := s.startHpp("move", "data", "--to", to, "--apply")
			s.eventually("the plugin cannot evict the pod", func() (bool, string) {
				return strings.Contains(moving.Log(), "disruption budget"), moving.Log()
			})
			s.moveIs(volume, "leave")
			moving.Kill(s.t.T)
			s.killDriver(from)
			s.driverPod(from)
			s.remove(budget)
			again = s.startHpp("move", "data", "--to", to, "--apply")
		}},
		step{"ControllerAndTargetsDriverAreKilledWhileItIsCopied", func(s *scene) {
			s.moveIs(volume, "copy", "swap", "discard", "restore", "") // the plugin evicts the pod
			controller := s.readyControllers(1)[0]
			s.onNode(controller.Spec.NodeName, "pkill -KILL -f -- '[-]-tunnel-address='")
			s.killDriver(to)
			s.driverPod(to)
			s.readyControllers(1)
			s.allConnected()
		}},
		step{"TheClaimIsBoundOnTheOtherNode", func(s *scene) {
			if err := again.Err(); err != nil {
				s.t.Errorf("%v: %s", err, again.Log())
			}
			s.eventually("the claim is the same, and Bound", func() (bool, string) {
				now := s.claimNow("data")
				return now.UID == claim.UID && now.Status.Phase == corev1.ClaimBound, string(now.Status.Phase)
			})
			if pv := s.bound("data"); s.nodeOf(pv) != to || pv.Name != volume ||
				pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
				s.t.Errorf("it is on %s: %+v", s.nodeOf(pv), pv.Spec)
			}
			s.said("PersistentVolumeClaim", "data", "VolumeMoved", "is on node "+to)
		}},
		step{"ThePodRunsThereWithItsData", func(s *scene) {
			if pod := s.running("db-0"); pod.Spec.NodeName != to {
				s.t.Errorf("it runs on %s", pod.Spec.NodeName)
			}
			if now := firstWord(s.onNode(to, "sha256sum "+volumePath(poolLocal, volume)+"/file")); now != sum {
				s.t.Errorf("the checksum is %s, it was %s", now, sum)
			}
			s.vanishes(from, volumePath(poolLocal, volume))
		}},
		step{"ThePluginDrainsTheNode", func(s *scene) {
			s.cordon(to)
			said := s.typed("how-to/move-a-volume.md", "kubectl hpp drain", "NODE", to)
			if !strings.Contains(said, "pod db-0 on node "+to+" is evicted") {
				s.t.Errorf("planned: %s", said)
			}
			if pod := s.running("db-0"); pod.Spec.NodeName != from {
				s.t.Errorf("the pod runs on %s", pod.Spec.NodeName)
			}
			if now := firstWord(s.onNode(from, "sha256sum "+volumePath(poolLocal, volume)+"/file")); now != sum {
				s.t.Errorf("the checksum is %s, it was %s", now, sum)
			}
			s.kubectl("uncordon", to)
			s.readyControllers(1) // it may have been on that node
			s.allConnected()
		}},
	)
}

// statefulSet describes one of a pod that has its volume already.
func (s *scene) statefulSet(name string, pod *corev1.Pod) *appsv1.StatefulSet {
	labels, replicas := map[string]string{"app": "e2e", "set": name}, int32(1)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
}

// disruptionBudget describes one that lets no pod of a StatefulSet be evicted.
func (s *scene) disruptionBudget(set string) *policyv1.PodDisruptionBudget {
	none := intstr.FromInt32(0)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: set, Namespace: s.namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": set}},
		},
	}
}

func (s *scene) claimNow(name string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	var claim corev1.PersistentVolumeClaim
	s.must(s.api.Get(s.ctx, name, s.namespace, &claim))
	return &claim
}

// aMove is what the controller says of one.
type aMove struct {
	PV, From, Phase, Message string
	Published                bool
	Problems                 []string
}

// move runs a command about a move in the controller.
func (s *scene) move(args ...string) (m aMove) {
	s.t.Helper()
	pod := s.readyControllers(1)[0]
	out := s.kubectl(inPod(&pod, append(append([]string{"move"}, args...), "--output", "json")...)...)
	s.must(json.Unmarshal([]byte(out), &m))
	return m
}

// moveIs waits until the move of a volume is in one of these phases, "" for ended.
func (s *scene) moveIs(pv string, phases ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the move of %s is in %q", pv, phases), func() (bool, string) {
		pods := s.controllers()
		if len(pods) == 0 {
			return false, "there is no controller"
		}
		out, err := s.cluster.Kubectl(s.ctx, nil, inPod(&pods[0], "move", "list", "--output", "json")...)
		var all []aMove
		if err == nil {
			err = json.Unmarshal([]byte(out), &all)
		}
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(all, func(m aMove) bool { return m.PV == pv })
		if i < 0 {
			return slices.Contains(phases, ""), "it has ended"
		}
		return slices.Contains(phases, all[i].Phase), fmt.Sprintf("%+v", all[i])
	})
}
