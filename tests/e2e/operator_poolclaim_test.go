package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/localpath"
)

const (
	// seedPool is the pool of the seeds' resources.
	seedPool = "local"
	// mounterComponent is what puts a claim at a pool's path.
	mounterComponent = "mounter"
	poolOfMounter    = "hostpathprovisioner.kubevirt.io/pool"
)

// poolClaim is the name of the claim that provides a pool on a node, as kubevirt's operator names it.
func poolClaim(pool, node string) string { return "hpp-pool-" + pool + "-" + node }

func TestOperatorServesTheSeedsPVCTemplate(t *testing.T) {
	node := world.workers[0]
	var sum string
	var user *corev1.Pod
	replacing(t,
		"the custom resource with a pvcTemplate works as it is printed, where rancher's local-path is the default",
		step{"Install", func(s *scene) {
			s.localPathIsTheDefault()
			s.installOperator()
		}},
		step{"ApplyVerbatim", func(s *scene) {
			s.admit(s.seed("pvctemplate-cr.yaml"))
			s.apply(s.seed("pool-storageclass.yaml"))
			s.deleteWhenDone("storageclass", seedClass)
			s.poolIs(seedPool, "Ready", len(s.nodes))
			s.condition("Available", "True")
			s.condition("Degraded", "False")
			for _, n := range s.nodes {
				s.claimOfPoolIs(seedPool, n, corev1.ClaimBound)
			}
		}},
		step{"PodsOnBothWorkersWriteAndRead", func(s *scene) {
			for _, worker := range s.workers {
				s.create(s.claim(worker, seedClass, "16Mi"))
				got := s.output(on(worker, s.pod("writer", claimed(worker), writeData()...)))
				s.deletePod("writer")
				s.output(s.pod("reader", claimed(worker), checkData(firstWord(got))...))
				s.deletePod("reader")
				s.isOnItsClaim(seedPool, worker, s.bound(worker).Name)
			}
		}},
		step{"TheMounterIsKilledWhileAVolumeIsInUse", func(s *scene) {
			s.create(s.claim("data", seedClass, "16Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			s.deletePod("writer")
			s.create(s.pod("user", claimed("data"), appendLines()...))
			user = s.running("user")
			s.killMounter(seedPool, seedPath, user)
			s.output(on(node, s.pod("reader", claimed(node), "read", dataDir+"/file")))
			s.deletePod("reader")
		}},
		step{"ItsNodeIsDrainedAndReturns", func(s *scene) {
			s.deletePod("user")
			s.drainAndReturn(node, sum)
			s.mounter(seedPool, node)
		}},
		step{"AnotherNodeReturns", func(s *scene) { s.poolSurvivesItsNode(s.workers[1]) }},
		step{"TheResourceGoesAndTheClaimsStay", func(s *scene) {
			for _, claim := range append(slices.Clone(s.workers), "data") {
				volume := s.bound(claim).Name
				s.remove(s.claim(claim, "", "0"))
				s.gone(volume)
			}
			for _, n := range s.workers { // a mounter leaves a pool mounted that has anything in it
				s.trashIsEmpty(n, seedPath)
			}
			s.deleteResource()
			s.noPodsOf(nodeComponent)
			s.noPodsOf(mounterComponent)
			s.nothingIsOwned()
			for _, n := range s.nodes {
				s.notMounted(n, seedPath+"/csi")
				s.poolClaimIs(seedPool, n, corev1.ClaimBound)
			}
		}},
	)
}

// localPathIsTheDefault puts rancher's local-path into the cluster, as its default class. What leaveOperator removes
// has to be gone before it: call it before installOperator.
func (s *scene) localPathIsTheDefault() {
	s.t.Helper()
	s.whenDone(func(ctx context.Context) error {
		return errors.Join(s.noVolumesOf(ctx, localpath.Class), localpath.Remove(ctx, s.cluster))
	})
	s.must(localpath.Install(s.ctx, s.cluster))
	s.kubectl("annotate", "storageclass", localpath.Class, "storageclass.kubernetes.io/is-default-class=true")
}

// noVolumesOf waits until a class has no PersistentVolume. Without their provisioner they would stay for ever, and each
// later feature that runs alone would wait for them in vain.
func (s *suite) noVolumesOf(ctx context.Context, class string) error {
	return wait.PollUntilContextTimeout(ctx, interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		var all corev1.PersistentVolumeList
		err := s.api.List(ctx, &all)
		return !slices.ContainsFunc(all.Items, func(v corev1.PersistentVolume) bool {
			return v.Spec.StorageClassName == class
		}), err
	})
}

// poolStatus is what the HostPathProvisioner says about a pool.
type poolStatus struct {
	Name         string `json:"name"`
	Phase        string `json:"phase"`
	Message      string `json:"message"`
	CurrentReady int    `json:"currentReady"`
	ClaimStatus  []struct {
		Name   string                             `json:"name"`
		Status corev1.PersistentVolumeClaimStatus `json:"status"`
	} `json:"claimStatuses"`
}

func (s *scene) poolStatus(pool string) (poolStatus, error) {
	u, err := s.resource()
	if err != nil {
		return poolStatus{}, err
	}
	var list []poolStatus
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "storagePoolStatuses")
	text, err := json.Marshal(entries)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	i := slices.IndexFunc(list, func(p poolStatus) bool { return p.Name == pool })
	if err != nil || i < 0 {
		return poolStatus{}, fmt.Errorf("no status of pool %s in %s: %w", pool, text, err)
	}
	return list[i], nil
}

// poolIs waits until a pool has a phase, and is ready on so many nodes.
func (s *scene) poolIs(pool, phase string, ready int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("pool %s is %s, and ready on %d nodes", pool, phase, ready), func() (bool, string) {
		p, err := s.poolStatus(pool)
		return err == nil && p.Phase == phase && p.CurrentReady == ready, fmt.Sprintf("%+v, %v", p, err)
	})
}

// poolSays waits until the status of a pool that is ready on so many nodes says all the words.
func (s *scene) poolSays(pool string, ready int, words ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("pool %s is ready on %d nodes and says %q", pool, ready, words), func() (bool, string) {
		p, err := s.poolStatus(pool)
		ok := err == nil && p.CurrentReady == ready && p.Phase != "Ready" && containsAll(p.Message, words)
		return ok, fmt.Sprintf("%+v, %v", p, err)
	})
}

// claimOfPoolIs waits until the status of a pool shows the claim of a node in a phase, and checks that it is true.
func (s *scene) claimOfPoolIs(pool, node string, phase corev1.PersistentVolumeClaimPhase) {
	s.t.Helper()
	name := poolClaim(pool, node)
	s.eventually(fmt.Sprintf("the status of pool %s shows claim %s %s", pool, name, phase), func() (bool, string) {
		p, err := s.poolStatus(pool)
		for _, c := range p.ClaimStatus {
			if c.Name == name && c.Status.Phase == phase {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v, %v", p, err)
	})
	s.poolClaimIs(pool, node, phase)
}

func (s *scene) poolClaimIs(pool, node string, phase corev1.PersistentVolumeClaimPhase) {
	s.t.Helper()
	var claim corev1.PersistentVolumeClaim
	s.must(s.api.Get(s.ctx, poolClaim(pool, node), namespace, &claim))
	if claim.Status.Phase != phase || len(claim.OwnerReferences) > 0 {
		s.t.Errorf("claim %s is %s with owners %v, want %s and none",
			claim.Name, claim.Status.Phase, claim.OwnerReferences, phase)
	}
}

// isOnItsClaim checks that a volume of a pool lies in the directory that local-path made for the pool's claim, and not
// on the node's own disk at the pool's path.
func (s *scene) isOnItsClaim(pool, node, volume string) {
	s.t.Helper()
	behind := localpath.Path + "/*_" + namespace + "_" + poolClaim(pool, node) + "/" + volume + "/file"
	if found := s.onNode(node, "ls "+behind+" || true"); len(strings.Fields(found)) != 1 {
		s.t.Errorf("on %s there is no %s: %s", node, behind, s.onNode(node, "findmnt; ls -la "+localpath.Path))
	}
}

// trashIsEmpty waits until what was deleted from a pool is purged.
func (s *scene) trashIsEmpty(node, path string) {
	s.t.Helper()
	s.eventually("the trash of "+path+" on "+node+" is purged", func() (bool, string) {
		left := s.onNode(node, "ls "+path+"/csi/.hpp/trash") // find would fail when an entry goes meanwhile
		return left == "", left
	})
}

// killMounter ends a pool's mounter without a chance to clean up, and then its pod, while a pod uses the claim data.
func (s *scene) killMounter(pool, path string, user *corev1.Pod) {
	s.t.Helper()
	node := user.Spec.NodeName
	before, mount := s.mounter(pool, node), s.mountAt(node, path+"/csi")
	lines := path + "/csi/" + s.bound("data").Name + "/lines"
	s.grows(node, lines)
	s.onNode(node, "pkill -KILL -f -- '[-]-pool="+pool+"'")
	s.eventually("the mounter has been restarted", func() (bool, string) {
		now := s.mounter(pool, node)
		return now.UID == before.UID && restarts(now) > restarts(before), describe(now)
	})
	s.kubectl("delete", "pod", before.Name, "--namespace", namespace, "--grace-period=0", "--force")
	s.eventually("another mounter is ready", func() (bool, string) {
		now := s.mounter(pool, node)
		return now.UID != before.UID, describe(now)
	})
	s.replaceMounter(pool, node)
	if now := s.mountAt(node, path+"/csi"); now != mount {
		s.t.Errorf("mount %s at the pool's path is now %s, while a volume is in use", mount, now)
	}
	s.grows(node, lines)
	s.untouched(user)
}

// drainAndReturn drains a node with a volume: its pod waits, and finds its data when the node is back.
func (s *scene) drainAndReturn(node, sum string) {
	s.t.Helper()
	s.create(s.pod("user", claimed("data"), appendLines()...))
	s.running("user")
	s.cordon(node)
	s.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout", "90s")
	s.create(s.pod("again", claimed("data"), checkData(sum)...))
	s.said("Pod", "again", "FailedScheduling", "unschedulable", "node affinity")
	s.kubectl("uncordon", node)
	s.phase("again", corev1.PodSucceeded)
	s.deletePod("again")
	s.condition("Available", "True")
}

// poolSurvivesItsNode restarts a worker: what was mounted went with its container. Every night its Node object is
// deleted before, until Kubernetes has removed its pods, which takes a minute, and it registers again.
func (s *scene) poolSurvivesItsNode(node string) {
	s.t.Helper()
	if s.nightly {
		s.kubectl("delete", "node", node)
		s.within(lostTimeout, "the mounter on "+node+" is gone", func() (bool, string) {
			list, err := s.mounters(seedPool, node)
			return err == nil && len(list) == 0, fmt.Sprintf("%d pods, %v", len(list), err)
		})
		s.poolClaimIs(seedPool, node, corev1.ClaimBound)
	}
	s.must(s.cluster.RestartNode(s.ctx, node))
	s.mounter(seedPool, node)
	s.output(s.pod("reader", claimed(node), "read", dataDir+"/file"))
	s.deletePod("reader")
	s.isOnItsClaim(seedPool, node, s.bound(node).Name)
	s.poolIs(seedPool, "Ready", len(s.nodes))
	s.condition("Available", "True")
}
