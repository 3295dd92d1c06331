package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// claim is that of the pool local on a node.
func claim(node string, phase corev1.PersistentVolumeClaimPhase) poolclaims.Claim {
	return poolclaims.Claim{Pool: "local", Node: node, PersistentVolumeClaim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "hpp", Name: "hpp-pool-local-" + node, CreationTimestamp: metav1.NewTime(moment()),
		},
		Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: new("fast"), VolumeName: "pv"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}}
}

func onNode(node string) poolclaims.Mount {
	return poolclaims.Mount{Pool: "local", Node: node, Claim: "hpp-pool-local-" + node}
}

// mounterMarks are the labels and annotations of a mounter and of its pods.
func mounterMarks(name, node string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"app.kubernetes.io/component": "mounter", names.PoolLabel: "local"},
		Annotations: map[string]string{names.NodeAnnotation: node},
	}
}

func mounter(node string, ready int32, conditions ...appsv1.DeploymentCondition) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: mounterMarks("mounter-"+node, node),
		Status:     appsv1.DeploymentStatus{ReadyReplicas: ready, Conditions: conditions},
	}
}

func mounterPod(node string, conditions ...corev1.PodCondition) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: mounterMarks("pod-"+node, node), Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: conditions},
	}
}

// claimed is one pool from a claim on one node, where the driver has found nothing.
func claimed(change ...func(*status.Input)) status.Input {
	in := status.Input{
		Now: moment(), TargetVersion: version, Generation: 7, Pools: onePool(), Old: healthy(),
		Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
		Nodes:       []corev1.Node{node("a", corev1.ConditionTrue)},
		Pods:        []corev1.Pod{pod("csi-a", "a", ready(), poolIs("local", names.PoolAbsent, "nothing is mounted"))},
		Deployments: []appsv1.Deployment{mounter("a", 0)},
		Claims: poolclaims.State{
			Mounts: []poolclaims.Mount{onNode("a")}, Claims: []poolclaims.Claim{claim("a", corev1.ClaimBound)},
		},
	}
	for _, apply := range change {
		apply(&in)
	}
	return in
}

// shared is claimed with one claim for this node and another, where the driver is not yet.
func shared(change ...func(*status.Input)) status.Input {
	in := claimed()
	in.Claims.Claims[0].Name, in.Claims.Claims[0].Node, in.Claims.Claims[0].Shared = "hpp-pool-local-shared", "", true
	in.Claims.Mounts = append(in.Claims.Mounts, onNode("b"))
	for i := range in.Claims.Mounts {
		in.Claims.Mounts[i].Claim, in.Claims.Mounts[i].Shared = "hpp-pool-local-shared", true
	}
	for _, apply := range change {
		apply(&in)
	}
	return in
}

// TestPoolsFromClaims: what a pool waits for, and what is wrong with it.
func TestPoolsFromClaims(t *testing.T) {
	t.Parallel()
	pending := func(in *status.Input) { in.Claims.Claims[0].Status.Phase = corev1.ClaimPending }
	pods := func(pods ...corev1.Pod) func(*status.Input) { return func(in *status.Input) { in.Mounters = pods } }
	up := func(in *status.Input) { in.Deployments[0].Status.ReadyReplicas = 1 }
	says := func(reason string) func(*status.Input) {
		return func(in *status.Input) { in.Pods[0].Status.Conditions[1] = poolIs("local", reason, "the driver says") }
	}
	unschedulable := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "no room",
	}
	since := moment().Format(time.RFC3339)
	for name, test := range map[string]struct {
		in       status.Input
		phase    v1beta1.StoragePoolPhase
		message  string
		degraded bool
	}{
		"pending": {
			claimed(pending), v1beta1.PoolPreparing,
			"node a: its claim hpp-pool-local-a (class fast) is Pending since " +
				since + ": kubectl describe pvc --namespace hpp hpp-pool-local-a says why", false,
		},
		"pending, and its pod cannot be scheduled for want of it": {
			claimed(pending, pods(mounterPod("a", unschedulable))), v1beta1.PoolPreparing,
			"node a: its claim hpp-pool-local-a (class fast) is Pending since " + since +
				": kubectl describe pvc --namespace hpp hpp-pool-local-a says why", false,
		},
		"lost": {
			claimed(func(in *status.Input) { in.Claims.Claims[0].Status.Phase = corev1.ClaimLost }),
			v1beta1.PoolDegraded, "node a: its claim hpp-pool-local-a has lost its volume pv", true,
		},
		"no mounter": {
			claimed(func(in *status.Input) { in.Deployments = nil }), v1beta1.PoolPreparing,
			"node a: its mounter is being made", false,
		},
		"no pod": {
			claimed(), v1beta1.PoolPreparing, "node a: its mounter, Deployment mounter-a, has no pod yet", false,
		},
		"pods refused": {
			claimed(func(in *status.Input) {
				in.Deployments[0] = mounter("a", 0, appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
					Message: "violates PodSecurity",
				})
			}), v1beta1.PoolDegraded, "node a: Deployment mounter-a gets no pod: violates PodSecurity", true,
		},
		"mounting": {
			claimed(pods(mounterPod("a", corev1.PodCondition{Type: corev1.PodReady, Message: "not ready: [mounter]"}))),
			v1beta1.PoolPreparing,
			"node a: its mounter, pod pod-a, is not ready, its log says why: not ready: [mounter]", false,
		},
		"failing": {
			claimed(pods(restarted(mounterPod("a")))), v1beta1.PoolDegraded, "node a: its mounter, pod pod-a: " +
				"container driver: it was restarted 3 times, last after it ended with code 1; see its log", true,
		},
		"bound elsewhere": {
			claimed(pods(mounterPod("a", unschedulable))), v1beta1.PoolDegraded,
			"node a: its mounter, pod pod-a: it cannot be scheduled: no room", true,
		},
		"mounted, and the driver has not looked": {
			claimed(up), v1beta1.PoolDegraded, "node a: nothing is mounted", true,
		},
		"there":                           {claimed(up, says(names.PoolPresent)), v1beta1.PoolReady, "", false},
		"there, and its mounter restarts": {claimed(says(names.PoolPresent)), v1beta1.PoolReady, "", false},
		"deleted below the volumes": {
			claimed(up, says(names.PoolPresent), func(in *status.Input) {
				in.Claims.Claims[0].DeletionTimestamp = new(metav1.NewTime(moment()))
			}), v1beta1.PoolDegraded, "somebody has deleted the claim hpp-pool-local-a of node a: it goes, with all " +
				"that is on it, when its mounter ends; move the volumes before that", true,
		},
		"one claim for all, pending": {
			shared(pending), v1beta1.PoolPreparing, "nodes a, b: its claim hpp-pool-local-shared (class fast) is " +
				"Pending since " + since + ": kubectl describe pvc --namespace hpp hpp-pool-local-shared says why",
			false,
		},
		"one claim for all, there on one of two": {
			shared(up, says(names.PoolPresent)), v1beta1.PoolPreparing, "node b: its mounter is being made", false,
		},
		"one claim for all, deleted below the volumes": {
			shared(up, says(names.PoolPresent), func(in *status.Input) {
				in.Claims.Mounts = in.Claims.Mounts[:1]
				in.Claims.Claims[0].DeletionTimestamp = new(metav1.NewTime(moment()))
			}), v1beta1.PoolDegraded, "somebody has deleted the claim hpp-pool-local-shared of all nodes: it goes, " +
				"with all that is on it, when the last mounter ends; move the volumes before that", true,
		},
		"one claim for all, refused, and mounted still": {
			shared(up, says(names.PoolPresent), func(in *status.Input) {
				in.Claims.Mounts, in.Claims.Claims = in.Claims.Mounts[:1], nil
				in.Claims.Problems = []poolclaims.Problem{{Pool: "local", Text: "it is somebody's"}}
			}), v1beta1.PoolDegraded, "it is somebody's", true,
		},
		"refused": {
			claimed(func(in *status.Input) {
				in.Claims = poolclaims.State{Problems: []poolclaims.Problem{{Pool: "local", Text: "it is elsewhere"}}}
			}), v1beta1.PoolDegraded, "it is elsewhere; node a: nothing is mounted", true,
		},
		"refused, and mounted still": {
			claimed(up, says(names.PoolPresent), func(in *status.Input) {
				in.Claims.Claims = nil
				in.Claims.Problems = []poolclaims.Problem{{Pool: "local", Node: "a", Text: "it is somebody's"}}
			}), v1beta1.PoolDegraded, "node a: it is somebody's", true,
		},
		"refused on a node where the driver is not yet": {
			claimed(up, says(names.PoolPresent), func(in *status.Input) {
				in.Claims.Problems = []poolclaims.Problem{{Pool: "local", Node: "b", Text: "it is somebody's"}}
			}), v1beta1.PoolDegraded, "node b: it is somebody's", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh, _ := status.Compute(test.in)
			got := fresh.StoragePoolStatuses[0]
			if got.Phase != test.phase || got.Message != test.message {
				t.Errorf("%s %q\nwant %s %q", got.Phase, got.Message, test.phase, test.message)
			}
			if is := meta.IsStatusConditionTrue(fresh.Conditions, v1beta1.Degraded); is != test.degraded {
				t.Errorf("degraded: %t", is)
			}
			if !meta.IsStatusConditionTrue(fresh.Conditions, v1beta1.Available) ||
				meta.IsStatusConditionTrue(fresh.Conditions, v1beta1.Progressing) {
				t.Errorf("a claim is not to change Available or Progressing: %+v", fresh.Conditions)
			}
		})
	}
}

// TestClaimStatusesAreBounded: a status has to fit into an object of the API, and what is wrong comes first.
func TestClaimStatusesAreBounded(t *testing.T) {
	t.Parallel()
	in := claimed(func(in *status.Input) {
		in.Claims.Claims = nil
		for i := range 2500 {
			phase := corev1.ClaimBound
			if i == 2400 {
				phase = corev1.ClaimPending
			}
			in.Claims.Claims = append(in.Claims.Claims, claim(fmt.Sprintf("n%04d", i), phase))
		}
	})
	fresh, _ := status.Compute(in)
	got := fresh.StoragePoolStatuses[0].ClaimStatuses
	if len(got) != 2000 || got[0].Node != "n2400" || got[1].Node != "n0000" ||
		!strings.HasSuffix(got[0].Name, got[0].Node) {
		t.Errorf("%d claims, the first are %+v", len(got), got[:2])
	}
}
