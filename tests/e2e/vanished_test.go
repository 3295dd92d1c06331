package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// lostTimeout is for what waits for Kubernetes' own long periods: a node is NotReady after 20 s, the controller leaves
// it 30 s later, and the pods of a deleted Node object go within a minute.
const lostTimeout = 5 * time.Minute

// lostNode is a worker that dies, the volumes on it, and since when something is so.
type lostNode struct {
	name       string
	dead       bool
	used, kept string // volumes: of a pod that ran there, and of a claim that had no pod
	since      time.Time
}

// TestNodeIsLost is the last of the features that run alone, by the name of its file: it takes a node from the cluster.
func TestNodeIsLost(t *testing.T) {
	var lost lostNode
	alone(t, "the controller's worker dies, its Node object is deleted, and it returns",
		step{"VolumesAreOnIt", func(s *scene) { lost.prepare(s) }},
		step{"ItDies", func(s *scene) { lost.dies(s) }},
		step{"AnotherControllerServes", func(s *scene) { lost.another(s) }},
		step{"ClaimPinnedToItMovesElsewhere", func(s *scene) {
			lost.isNot(s, "pinned")
			s.t.Logf("a claim pinned to the node was Bound elsewhere %s after that died", seconds(lost.since))
			s.phase("pinned", corev1.PodSucceeded)
		}},
		step{"ImmediateClaimsGoElsewhere", func(s *scene) {
			for i := range 6 {
				s.create(s.claim(numbered("immediate", i), classImmediate, "16Mi"))
			}
			for i := range 6 {
				lost.isNot(s, numbered("immediate", i))
			}
		}},
		step{"ClaimMadeAfterNotReadyGoesElsewhere", func(s *scene) { lost.notReady(s) }},
		step{"ItsVolumesCannotBeDeletedYet", func(s *scene) {
			given := s.typedLine("how-to/lose-a-node.md", "node release NODE    ", "NODE", lost.name)
			if !containsAll(given, []string{lost.used, lost.kept}) {
				s.t.Errorf("releasing the node would not give up %s and %s:\n%s", lost.used, lost.kept, given)
			}
			s.remove(s.claim("kept", "", "0"))
			s.remove(s.claim("used", "", "0"))
			s.remove(s.pod("user", corev1.VolumeSource{}))
			s.said("PersistentVolume", lost.kept, "VolumeFailedDelete", lost.name)
			s.eventually("the pod on the dead node is Terminating", func() (bool, string) {
				var p corev1.Pod
				err := s.api.Get(s.ctx, "user", s.namespace, &p)
				return err == nil && p.DeletionTimestamp != nil, fmt.Sprint(err)
			})
		}},
		step{"NodeObjectIsDeletedAndTheVolumesAreLetGo", func(s *scene) {
			s.kubectl("delete", "node", lost.name)
			lost.since = time.Now()
			for what, volume := range map[string]string{"without a pod": lost.kept, "of a pod stuck there": lost.used} {
				s.letGo(volume)
				s.said("PersistentVolume", volume, "VolumeReleased", lost.name)
				s.t.Logf("the volume %s was let go %s after the Node object (nodeGoneAfter is %s)",
					what, seconds(lost.since), nodeGoneAfter)
			}
		}},
		step{"ItReturnsAndItsRecordsAreOrphans", func(s *scene) { lost.returns(s) }},
		step{"OneOrphanIsDiscardedAndOneAdopted", func(s *scene) {
			const page = "how-to/lose-a-node.md"
			listed := s.typedLine(page, "--node NODE --state orphan", "NODE", lost.name)
			if !containsAll(listed, []string{lost.used, lost.kept}) {
				s.t.Errorf("the orphans %s and %s are not listed:\n%s", lost.used, lost.kept, listed)
			}
			s.typedLine(page, "discard ID", "ID", lost.used+" --yes")
			s.vanishes(lost.name, volumePath(poolSecond, lost.used))
			s.typedLine(page, "adopt ID", "ID", lost.kept)
			s.has("kept", lost.kept)
			s.typed("how-to/move-a-disk.md", `:"Delete"`, "ID", lost.kept)
			s.remove(s.claim("kept", "", "0"))
			s.gone(lost.kept)
			s.vanishes(lost.name, volumePath(poolSecond, lost.kept))
		}},
		step{"ItServesAgain", func(s *scene) {
			s.create(s.claim("again", classOf(poolSecond), "16Mi"))
			s.output(on(lost.name, s.pod("again", claimed("again"), writeData()...)))
		}},
	)
}

func (l *lostNode) prepare(s *scene) {
	s.t.Helper()
	l.name = s.readyControllers(1)[0].Spec.NodeName
	s.allConnected()
	for _, claim := range []string{"used", "kept"} {
		s.create(s.claim(claim, classOf(poolSecond), "16Mi"))
		s.output(on(l.name, s.pod(claim, claimed(claim), writeData()...)))
		s.deletePod(claim)
	}
	l.used, l.kept = s.bound("used").Name, s.bound("kept").Name
	s.create(on(l.name, s.pod("user", claimed("used"), appendLines()...)))
	s.running("user")
}

// dies kills the node and the controller on it, while a claim is made that can go nowhere else at first.
func (l *lostNode) dies(s *scene) {
	s.t.Helper()
	others := slices.DeleteFunc(slices.Clone(s.workers), func(node string) bool { return node == l.name })
	schedule := func(ctx context.Context, verb string) error {
		_, err := s.cluster.Kubectl(ctx, nil, append([]string{verb}, others...)...)
		return err
	}
	s.must(schedule(s.ctx, "cordon"))
	s.whenDone(func(ctx context.Context) error { return schedule(ctx, "uncordon") })
	l.kill(s)
	s.create(s.claim("pinned", classOf(poolSecond), "16Mi"))
	s.create(s.pod("pinned", claimed("pinned"), writeData()...))
	s.eventually("the scheduler has selected "+l.name, func() (bool, string) {
		var c corev1.PersistentVolumeClaim
		err := s.api.Get(s.ctx, "pinned", s.namespace, &c)
		selected := c.Annotations[selectedNode]
		return selected == l.name, fmt.Sprintf("%q, %v", selected, err)
	})
	s.must(schedule(s.ctx, "uncordon"))
}

// kill cuts the node's power until the feature is over, or it returns.
func (l *lostNode) kill(s *scene) {
	s.t.Helper()
	s.whenDone(func(ctx context.Context) error {
		if !l.dead {
			return nil
		}
		return s.cluster.RestartNode(ctx, l.name)
	})
	l.dead = true
	s.must(s.cluster.KillNode(s.ctx, l.name))
	l.since = time.Now()
}

// another waits until another worker has the controller, to which the nodes go over, and uses a volume there.
func (l *lostNode) another(s *scene) {
	s.t.Helper()
	s.within(lostTimeout, "the controller is on another node than "+l.name, func() (bool, string) {
		pods := s.controllers()
		for _, p := range pods {
			if p.Spec.NodeName == l.name || !isReady(&p) {
				return false, p.Name + " on " + p.Spec.NodeName + ": " + describe(&p)
			}
		}
		return len(pods) == 1, fmt.Sprintf("%d pods", len(pods))
	})
	s.t.Logf("another controller is ready %s after the node died", seconds(l.since))
	node := s.controllers()[0].Spec.NodeName
	s.create(s.claim("served", classOf(poolSecond), "16Mi"))
	s.output(on(node, s.pod("served", claimed("served"), writeData()...)))
	s.t.Logf("a claim on %s was served %s after the node died", node, seconds(l.since))
}

// notReady waits until Kubernetes knows that the node is away, and makes a claim whose pod would go there.
func (l *lostNode) notReady(s *scene) {
	s.t.Helper()
	s.within(lostTimeout, l.name+" is not ready", func() (bool, string) {
		var node corev1.Node
		if err := s.api.Get(s.ctx, l.name, "", &node); err != nil {
			return false, err.Error()
		}
		ready := func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		return !slices.ContainsFunc(node.Status.Conditions, ready), "it is"
	})
	s.t.Logf("not ready %s after it died", seconds(l.since))
	s.nodeIs(l.name, notConnected)
	said := s.typed("how-to/lose-a-node.md", "kubectl hpp get nodes", "NODE", l.name)
	if !containsAll(said, []string{l.name, "used", "kept"}) {
		s.t.Errorf("the volumes used and kept on %s are not listed:\n%s", l.name, said)
	}
	begin := time.Now()
	s.create(s.claim("later", classOf(poolSecond), "16Mi"))
	p := anywhere(s.pod("later", claimed("later"), writeData()...))
	here := corev1.NodeSelectorRequirement{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{l.name},
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{here}},
		}},
	}}
	s.create(p)
	l.isNot(s, "later")
	s.t.Logf("a claim made then, whose pod would rather be there, was Bound elsewhere after %s", seconds(begin))
}

// returns starts the node again, which registers anew.
func (l *lostNode) returns(s *scene) {
	s.t.Helper()
	begin := time.Now()
	s.must(s.cluster.RestartNode(s.ctx, l.name))
	l.dead = false
	s.driverPod(l.name)
	s.nodeIs(l.name, connected)
	s.t.Logf("connected %s after its start", seconds(begin))
	s.said("Node", l.name, "VolumesOrphaned", poolSecond, l.used, l.kept)
	list := s.kubectl(inPod(&s.readyControllers(1)[0], "volume", "list")...)
	for _, volume := range []string{l.used, l.kept} {
		shown := slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
			return containsAll(line, []string{volume, l.name, poolSecond, "orphan"})
		})
		if !shown {
			s.t.Errorf("driver volume list does not show %s as an orphan on %s:\n%s", volume, l.name, list)
		}
		if !s.exists(l.name, volumePath(poolSecond, volume)+"/file") {
			s.t.Errorf("the data of %s is gone from %s", volume, l.name)
		}
	}
}

// isNot checks that a claim is Bound on another node.
func (l *lostNode) isNot(s *scene, claim string) {
	s.t.Helper()
	if got := s.nodeOf(s.bound(claim)); got == l.name {
		s.t.Errorf("claim %s has its volume on %s, which is dead", claim, got)
	}
}

// letGo waits until the PersistentVolume of a node that is gone is deleted.
func (s *scene) letGo(volume string) {
	s.t.Helper()
	s.within(lostTimeout, "PersistentVolume "+volume+" is gone", func() (bool, string) {
		var v corev1.PersistentVolume
		err := s.api.Get(s.ctx, volume, "", &v)
		return apierrors.IsNotFound(err), fmt.Sprintf("%s, %v", v.Status.Phase, err)
	})
}

// TestNodeIsReleased types what else the page says of a node that does not come back soon: its pods go, its volumes are
// given up although there is a Node object, and all orphans are adopted, as in a cluster that is built anew.
func TestNodeIsReleased(t *testing.T) {
	nightly(t)
	const page = "how-to/lose-a-node.md"
	var lost lostNode
	const taint = "taint nodes NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	alone(t, "a node that is off is released, and what it had is adopted when it is back",
		step{"ItDies", func(s *scene) {
			controller := s.readyControllers(1)[0].Spec.NodeName
			lost.name = s.workers[slices.IndexFunc(s.workers, func(node string) bool { return node != controller })]
			s.create(s.claim("used", classOf(poolSecond), "16Mi"))
			s.create(on(lost.name, s.pod("used", claimed("used"), appendLines()...)))
			s.running("used")
			lost.used = s.bound("used").Name
			lost.kill(s)
			s.nodeIs(lost.name, notConnected)
		}},
		step{"ItsPodsGoByTheTaint", func(s *scene) {
			s.remove(s.pod("used", corev1.VolumeSource{}))
			s.typed(page, taint, "NODE", lost.name)
			s.eventually("the pod on the dead node is gone", func() (bool, string) {
				var p corev1.Pod
				err := s.api.Get(s.ctx, "used", s.namespace, &p)
				return apierrors.IsNotFound(err), fmt.Sprint(err)
			})
		}},
		step{"ItsVolumesAreGivenUp", func(s *scene) {
			given := s.typedLine(page, "node release NODE --apply", "NODE", lost.name)
			_, commands, found := strings.Cut(given, "\nkubectl ")
			if !found || !strings.Contains(commands, " delete pvc ") {
				s.t.Fatalf("no command that deletes the claim is printed:\n%s", given)
			}
			s.bash("kubectl " + commands)
			s.letGo(lost.used)
		}},
		step{"AllOrphansAreAdopted", func(s *scene) {
			s.must(s.cluster.RestartNode(s.ctx, lost.name))
			lost.dead = false
			s.kubectl("taint", "nodes", lost.name, "node.kubernetes.io/out-of-service-")
			s.driverPod(lost.name)
			s.nodeIs(lost.name, connected)
			s.said("Node", lost.name, "VolumesOrphaned", poolSecond, lost.used)
			s.typed(page, "adopt --apply $(")
			s.has("used", lost.used)
			s.output(s.pod("reader", claimed("used"), "read", dataDir+"/lines"))
			s.deletePod("reader")
			s.typed("how-to/move-a-disk.md", `:"Delete"`, "ID", lost.used)
			s.remove(s.claim("used", "", "0"))
			s.gone(lost.used)
		}},
	)
}
