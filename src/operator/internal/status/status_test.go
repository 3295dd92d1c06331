package status_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

const version = "1.2.3"

func moment() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// set is a DaemonSet whose controller has seen its last change.
func set(name string, desired, updated, available int32) appsv1.DaemonSet {
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"kubernetes.io/os": "linux", "disk": "fast"},
		}}},
		Status: appsv1.DaemonSetStatus{
			ObservedGeneration:     2,
			DesiredNumberScheduled: desired,
			UpdatedNumberScheduled: updated,
			NumberAvailable:        available,
		},
	}
}

// deployment is one of a single pod, at generation 2.
func deployment(name string, observed int64, updated, available int32) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: observed,
			UpdatedReplicas:    updated,
			AvailableReplicas:  available,
		},
	}
}

func node(name string, ready corev1.ConditionStatus) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func pod(name, on string, conditions ...corev1.PodCondition) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"app.kubernetes.io/component": "csi-driver"},
		},
		Spec:   corev1.PodSpec{NodeName: on},
		Status: corev1.PodStatus{Conditions: conditions},
	}
}

func ready() corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
}

func readySince(ago time.Duration) corev1.PodCondition {
	condition := ready()
	condition.LastTransitionTime = metav1.NewTime(moment().Add(-ago))
	return condition
}

func poolIs(pool, reason, message string) corev1.PodCondition {
	state := corev1.ConditionFalse
	if reason == names.PoolPresent || reason == names.PoolDegraded {
		state = corev1.ConditionTrue
	}
	return corev1.PodCondition{
		Type:    corev1.PodConditionType(names.PoolCondition + pool),
		Status:  state,
		Reason:  reason,
		Message: message,
	}
}

// unknown is a condition of a node that is not connected to the controller.
func unknown(condition corev1.PodCondition) corev1.PodCondition {
	condition.Status, condition.Reason = corev1.ConditionUnknown, ""
	return condition
}

func waiting(p corev1.Pod, reason, message string) corev1.Pod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{
			Name:  "driver",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		},
	}
	return p
}

func restarted(p corev1.Pod) corev1.Pod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "driver", RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
	return p
}

// healthy is a status of this version in which all is well.
func healthy() v1beta1.HostPathProvisionerStatus {
	fresh, _ := status.Compute(status.Input{
		Now:           moment().Add(-time.Hour),
		TargetVersion: version, Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
		Pools: onePool(), Generation: 7,
	})
	return fresh
}

func onePool() []pools.Outcome { return []pools.Outcome{{Name: "local"}} }

// rolling is a status of this version whose rollout began some time ago.
func rolling(ago time.Duration) v1beta1.HostPathProvisionerStatus {
	fresh, _ := status.Compute(status.Input{
		Old: healthy(), Now: moment().Add(-ago), TargetVersion: version, Expected: []string{"csi"},
		DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
		Pools:      onePool(), Generation: 7,
	})
	return fresh
}

// stuck is a status of this version whose rollout had its time some time ago.
func stuck(ago time.Duration) v1beta1.HostPathProvisionerStatus {
	fresh, _ := status.Compute(status.Input{
		Old: rolling(
			ago + status.ProgressDeadline), Now: moment().Add(-ago), TargetVersion: version, Expected: []string{"csi"},
		DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)}, Pools: onePool(), Generation: 7,
	})
	return fresh
}

// older is a status of an older generation.
func older(of v1beta1.HostPathProvisionerStatus) v1beta1.HostPathProvisionerStatus {
	for i := range of.Conditions {
		of.Conditions[i].ObservedGeneration--
	}
	return of
}

// poolless is a status of this version of which no pool was served.
func poolless() v1beta1.HostPathProvisionerStatus {
	fresh, _ := status.Compute(status.Input{
		Now:           moment().Add(-time.Hour),
		TargetVersion: version, Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
		Pools: []pools.Outcome{{Name: "one", Broken: "later"}}, Generation: 7,
	})
	return fresh
}

func conditions(from v1beta1.HostPathProvisionerStatus) map[string]string {
	found := map[string]string{}
	for _, condition := range from.Conditions {
		found[condition.Type] = string(condition.Status) + " " + condition.Reason
	}
	return found
}

func TestConditions(t *testing.T) {
	t.Parallel()
	const fine, rolledOut, notYet = "False AsExpected", "True RolledOut", "False NotRolledOut"
	nodes := []corev1.Node{
		node("a", corev1.ConditionTrue),
		node("b", corev1.ConditionTrue),
		node("dead", corev1.ConditionUnknown),
	}
	unseen := set("csi", 1, 1, 1)
	unseen.Status.ObservedGeneration = 1
	upgrading := healthy()
	upgrading.ObservedVersion, upgrading.TargetVersion = "1.0.0", "1.0.0"
	for name, c := range map[string]struct {
		in   status.Input
		want map[string]string
		// says is in the message of a condition.
		says   map[string]string
		events []string
		// observed is the version that is said to run.
		observed string
	}{
		"the controller is not there": {
			in: status.Input{
				Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				ExpectedDeployments: []string{"controller"}, Old: healthy(),
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Deploying", "Degraded": fine},
			says:     map[string]string{"Progressing": "Deployment controller is not there"},
			observed: version,
		},
		"the controller was never ready": {
			in: status.Input{
				Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				ExpectedDeployments: []string{"controller"},
				Deployments:         []appsv1.Deployment{deployment("controller", 2, 1, 0)},
			},
			want:   map[string]string{"Available": notYet, "Progressing": "True Deploying", "Degraded": fine},
			says:   map[string]string{"Available": "Deployment controller: 0 of 1 pods are available"},
			events: []string{"DeployStarted"},
		},
		"the controller is changed": {
			in: status.Input{
				Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				ExpectedDeployments: []string{"controller"}, Old: healthy(),
				Deployments: []appsv1.Deployment{deployment("controller", 1, 0, 0)},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Deploying", "Degraded": fine},
			says:     map[string]string{"Progressing": "Deployment controller: its change has not been taken up yet"},
			observed: version,
		},
		"the controller does not start": {
			in: status.Input{
				Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				ExpectedDeployments: []string{"controller"}, Old: healthy(),
				Deployments: []appsv1.Deployment{deployment("controller", 2, 1, 0)},
				Pods:        []corev1.Pod{waiting(pod("controller-1", "a"), "ErrImagePull", "no such image")},
				Nodes:       nodes,
			},
			want: map[string]string{"Available": notYet, "Progressing": fine, "Degraded": "True PodsFailing"},
			says: map[string]string{"Degraded": "pod controller-1 on node a: container driver: ErrImagePull: no " +
				"such image"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"the controller is complete": {
			in: status.Input{
				Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				ExpectedDeployments: []string{"controller"}, Old: healthy(),
				Deployments: []appsv1.Deployment{deployment("controller", 2, 1, 1)},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": fine, "Degraded": fine},
			observed: version,
		},
		"new": {
			in: status.Input{Expected: []string{"csi"}},
			want: map[string]string{
				"Available": "False NotRolledOut", "Progressing": "True Deploying",
				"Degraded": fine,
			},
			says:   map[string]string{"Progressing": "DaemonSet csi is not there"},
			events: []string{"DeployStarted"},
		},
		"rolled out": {
			in:       status.Input{Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 2, 2, 2)}},
			want:     map[string]string{"Available": rolledOut, "Progressing": fine, "Degraded": fine},
			events:   []string{"DeployStarted", "ProvisionerHealthy"},
			observed: version,
		},
		"still well: no event": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": fine, "Degraded": fine},
			observed: version,
		},
		"the legacy provisioner counts": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi", "legacy"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 2, 2, 2), set("legacy", 2, 2, 0)},
			},
			want: map[string]string{
				"Available": "False NotRolledOut", "Progressing": "True Deploying",
				"Degraded": fine,
			},
			says:     map[string]string{"Available": "DaemonSet legacy: 0 of 2 nodes have an available pod"},
			observed: version,
		},
		"no node matches": {
			in:   status.Input{Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 0, 0, 0)}},
			want: map[string]string{"Available": "False NoNodes", "Progressing": fine, "Degraded": fine},
			says: map[string]string{"Available": "DaemonSet csi with nodeSelector disk=fast,kubernetes.io/os=linux; " +
				"label a node, or change spec.workload"},

			events: []string{"DeployStarted"},
		},
		"a change that nobody has seen yet": {
			in:       status.Input{Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{unseen}},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Deploying", "Degraded": fine},
			says:     map[string]string{"Progressing": "its change has not been taken up yet"},
			observed: version,
		},
		"an upgrade under way stays available": {
			in: status.Input{
				Old: upgrading, Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
				Nodes: nodes,
				Pods:  []corev1.Pod{waiting(pod("p", "a"), "ContainerCreating", "")},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Upgrading", "Degraded": fine},
			says:     map[string]string{"Available": "the driver runs on 2 of 3 nodes; the others are starting"},
			events:   []string{"UpgradeStarted"},
			observed: "1.0.0",
		},
		"an image that is not to be had": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 2, 2, 1)},
				Nodes: nodes,
				Pods: []corev1.Pod{
					pod("p", "a", ready()),
					waiting(pod("q", "b"), "ImagePullBackOff", "no such image"),
				},
			},
			want: map[string]string{
				"Available": "False NotRolledOut", "Progressing": fine,
				"Degraded": "True PodsFailing",
			},
			says: map[string]string{"Degraded": "pod q on node b: container driver: ImagePullBackOff: no such " +
				"image"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"a container that keeps ending": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 2, 2, 1)},
				Nodes: nodes,
				Pods:  []corev1.Pod{restarted(pod("q", "b"))},
			},
			want: map[string]string{
				"Available": "False NotRolledOut", "Progressing": fine,
				"Degraded": "True PodsFailing",
			},
			says: map[string]string{"Degraded": "it was restarted 3 times, last after it ended with code 1; see " +
				"its log"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"a dead node": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 2, 2, 1)},
				Nodes: nodes,
				Pods:  []corev1.Pod{pod("q", "dead")},
			},
			want: map[string]string{
				"Available": "False NotRolledOut", "Progressing": fine,
				"Degraded": "True PodsFailing",
			},
			says:     map[string]string{"Degraded": "pod q on node dead: the node is not ready"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"what cannot be rendered leaves what runs": {
			in: status.Input{
				Old: healthy(), RenderError: errors.New("wrong"),
				DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
			},
			want: map[string]string{
				"Available": rolledOut, "Progressing": "False RenderFailed",
				"Degraded": "True RenderFailed",
			},
			says:     map[string]string{"Degraded": "wrong; what runs is left as it is"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"what cannot be applied": {
			in: status.Input{
				Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				ApplyError: errors.Join(errors.New("one"), errors.New("two")),
				Violations: []string{"three"},
			},
			want: map[string]string{
				"Available": rolledOut, "Progressing": "False ApplyFailed",
				"Degraded": "True ApplyFailed",
			},
			says:   map[string]string{"Degraded": "one\ntwo; three"},
			events: []string{"DeployStarted", "ProvisionerHealthy", "Degraded"},
		},
		"an old violation": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				Violations: []string{"first", "second"},
				Pools:      []pools.Outcome{{Name: "Old", Broken: "left out: first"}, {Name: "local"}},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": fine, "Degraded": "True InvalidSpec"},
			says:     map[string]string{"Degraded": "first; second"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"a pool that is absent": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				Nodes: nodes,
				Pools: []pools.Outcome{{Name: "local"}},
				Pods:  []corev1.Pod{pod("p", "a", ready(), poolIs("local", names.PoolAbsent, "the disk is gone"))},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": fine, "Degraded": "True PoolAbsent"},
			says:     map[string]string{"Degraded": `pool "local": node a: the disk is gone`},
			events:   []string{"Degraded"},
			observed: version,
		},
		"what is not served": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)}, NotServed: []string{"a", "b"},
			},
			want: map[string]string{
				"Available": rolledOut, "Progressing": fine, "Degraded": fine,
				"NotServed": "True NotServed",
			},
			says:     map[string]string{"NotServed": "a; b"},
			observed: version,
		},
		"what cannot be rendered, and never was": {
			in: status.Input{RenderError: errors.New("wrong")},
			want: map[string]string{
				"Available": notYet, "Progressing": "False RenderFailed",
				"Degraded": "True RenderFailed",
			},
			says:   map[string]string{"Available": "no DaemonSet has been made yet"},
			events: []string{"DeployStarted", "Degraded"},
		},
		"what cannot be rendered while something else is rolled out": {
			in: status.Input{
				Old: healthy(), RenderError: errors.New("wrong"),
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
			},
			want: map[string]string{
				"Available": rolledOut, "Progressing": "True Deploying",
				"Degraded": "True RenderFailed",
			},
			events:   []string{"Degraded"},
			observed: version,
		},
		"a DaemonSet that is refused": {
			in: status.Input{Expected: []string{"csi"}, ApplyError: errors.New("forbidden")},
			want: map[string]string{
				"Available": notYet, "Progressing": "False ApplyFailed",
				"Degraded": "True ApplyFailed",
			},
			events: []string{"DeployStarted", "Degraded"},
		},
		"a DaemonSet that is gone and cannot be made again": {
			in: status.Input{Old: healthy(), Expected: []string{"csi"}, ApplyError: errors.New("forbidden")},
			want: map[string]string{
				"Available": notYet, "Progressing": "False ApplyFailed",
				"Degraded": "True ApplyFailed",
			},
			events:   []string{"Degraded"},
			observed: version,
		},
		"one refused while the other is rolled out": {
			in: status.Input{
				Expected:   []string{"csi", "legacy"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)}, ApplyError: errors.New("forbidden"),
			},
			want: map[string]string{
				"Available": notYet, "Progressing": "True Deploying",
				"Degraded": "True ApplyFailed",
			},
			events: []string{"DeployStarted", "Degraded"},
		},
		"a rollout that has time yet": {
			in: status.Input{
				Old: rolling(status.ProgressDeadline - time.Second), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Deploying", "Degraded": fine},
			observed: version,
		},
		"a rollout that has had its time": {
			in: status.Input{
				Old: rolling(status.ProgressDeadline), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
			},
			want: map[string]string{
				"Available": notYet, "Progressing": "False DeadlineExceeded",
				"Degraded": "True DeadlineExceeded",
			},
			says: map[string]string{
				"Progressing": "no further for 15m0s: DaemonSet csi: 2 of 3 nodes have an available pod, 1 of this " +
					"version",
				"Degraded": "the events of the DaemonSet and of its pods say why",
			},
			events:   []string{"Degraded"},
			observed: version,
		},
		"a namespace that refuses the pods": {
			in: status.Input{
				Old: rolling(status.ProgressDeadline), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 0, 0)},
			},
			want: map[string]string{
				"Available": notYet, "Progressing": "False DeadlineExceeded",
				"Degraded": "True DeadlineExceeded",
			},
			says: map[string]string{"Degraded": "a namespace without the label " +
				"pod-security.kubernetes.io/enforce=privileged"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"an upgrade that hangs on a pod that keeps ending": {
			in: status.Input{
				Old: rolling(status.ProgressDeadline), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)}, Nodes: nodes,
				Pods: []corev1.Pod{restarted(pod("q", "b"))},
			},
			want: map[string]string{
				"Available": notYet, "Progressing": "False DeadlineExceeded",
				"Degraded": "True PodsFailing",
			},
			says:     map[string]string{"Degraded": "no further for 15m0s"},
			events:   []string{"Degraded"},
			observed: version,
		},
		"a long rollout that gets further": {
			in: status.Input{
				Old: rolling(time.Hour), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
				Nodes: nodes,
				Pods:  []corev1.Pod{pod("p", "a", readySince(time.Minute))},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Deploying", "Degraded": fine},
			observed: version,
		},
		"what had its time stays so": {
			in: status.Input{
				Old: stuck(time.Hour), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
				Nodes: nodes,
				Pods:  []corev1.Pod{pod("p", "a", readySince(2*time.Hour))},
			},
			want: map[string]string{
				"Available": notYet, "Progressing": "False DeadlineExceeded",
				"Degraded": "True DeadlineExceeded",
			},
			observed: version,
		},
		"what had its time and gets further after all": {
			in: status.Input{
				Old: stuck(time.Hour), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 3, 2, 2)},
				Nodes: nodes,
				Pods:  []corev1.Pod{pod("p", "a", readySince(time.Minute))},
			},
			want:     map[string]string{"Available": notYet, "Progressing": "True Deploying", "Degraded": fine},
			observed: version,
		},
		"another specification has its own time": {
			in: status.Input{
				Old: older(rolling(time.Hour)), Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{set("csi", 3, 1, 2)},
			},
			want:     map[string]string{"Available": rolledOut, "Progressing": "True Deploying", "Degraded": fine},
			observed: version,
		},
		"no pool is served": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				NotServed: []string{"a"}, Violations: []string{"b"},
				Pools: []pools.Outcome{{Name: "one", Broken: "later"}, {Name: "two", Broken: "left out: why"}},
			},
			want: map[string]string{
				"Available": "False NoPools", "Progressing": fine,
				"Degraded": "True InvalidSpec", "NotServed": "True NotServed",
			},
			says:     map[string]string{"Available": `no pool is served: pool "one": later; pool "two": left out: why`},
			events:   []string{"Degraded"},
			observed: version,
		},
		"no pool at all": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				Pools: []pools.Outcome{},
			},
			want:     map[string]string{"Available": "False NoPools", "Progressing": fine, "Degraded": fine},
			says:     map[string]string{"Available": "add one to spec.storagePools"},
			observed: version,
		},
		"no pool was served, and now it cannot be rendered": {
			in: status.Input{
				Old: poolless(), RenderError: errors.New("wrong"), DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				Pools: []pools.Outcome{},
			},
			want: map[string]string{
				"Available": "False NoPools", "Progressing": "False RenderFailed",
				"Degraded": "True RenderFailed",
			},
			says:     map[string]string{"Available": `pool "one": later`},
			events:   []string{"Degraded"},
			observed: version,
		},
		"made anew": {
			in: status.Input{Old: healthy(), Expected: []string{"csi"}, Replacing: []string{"DaemonSet ns/csi"}},
			want: map[string]string{
				"Available": "False NotRolledOut", "Progressing": "True Replacing",
				"Degraded": fine,
			},
			says:     map[string]string{"Progressing": "DaemonSet ns/csi"},
			observed: version,
		},
		"a deletion that is held": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				Deleting: &gates.Gate{Reason: "VolumesLeft", Message: "1 volume left"},
			},
			want: map[string]string{
				"Available": rolledOut, "Progressing": "True Deleting", "Degraded": fine,
				"Deleting": "True VolumesLeft",
			},
			says:     map[string]string{"Deleting": "1 volume left"},
			events:   []string{"DeletionBlocked"},
			observed: version,
		},
		"a deletion that goes on": {
			in: status.Input{
				Old: healthy(), Expected: []string{"csi"}, DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)},
				Deleting: &gates.Gate{Reason: "PodsRunning", Message: "waits"},
			},
			want: map[string]string{
				"Available": rolledOut, "Progressing": "True Deleting", "Degraded": fine,
				"Deleting": "True PodsRunning",
			},
			observed: version,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.in.Pools == nil {
				c.in.Pools = onePool()
			}
			c.in.Now, c.in.TargetVersion, c.in.OperatorVersion, c.in.Generation = moment(), version, "op", 7
			got, events := status.Compute(c.in)
			if diff := cmp.Diff(c.want, conditions(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			for kind, text := range c.says {
				if condition := meta.FindStatusCondition(got.Conditions, kind); condition == nil ||
					!strings.Contains(condition.Message, text) {
					t.Errorf("%s says %v, want %q in it", kind, condition, text)
				}
			}
			var reasons []string
			for _, event := range events {
				reasons = append(reasons, event.Reason)
			}
			if diff := cmp.Diff(c.events, reasons); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got.ObservedVersion != c.observed || got.TargetVersion != version || got.OperatorVersion != "op" ||
				got.ObservedGeneration != 7 {
				t.Errorf("versions and generation: %+v, want observed %q", got, c.observed)
			}
		})
	}
}

// A rollout is looked at again exactly when it has had its time, and nothing else on a timer.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old  v1beta1.HostPathProvisionerStatus
		set  appsv1.DaemonSet
		pods []corev1.Pod
		gate *gates.Gate
		want time.Time
	}{
		"begins": {old: healthy(), set: set("csi", 3, 1, 2), want: moment().Add(status.ProgressDeadline)},
		"began": {
			old: rolling(time.Minute), set: set("csi", 3, 1, 2),
			want: moment().Add(status.ProgressDeadline - time.Minute),
		},
		"of another spec": {
			old: older(rolling(time.Minute)), set: set("csi", 3, 1, 2),
			want: moment().Add(status.ProgressDeadline),
		},
		"gets further": {
			old: rolling(time.Hour), set: set("csi", 3, 1, 2),
			pods: []corev1.Pod{pod("p", "a", readySince(time.Second))},
			want: moment().Add(status.ProgressDeadline - time.Second),
		},
		"has had its time": {old: rolling(status.ProgressDeadline), set: set("csi", 3, 1, 2)},
		"complete":         {old: healthy(), set: set("csi", 1, 1, 1)},
		"is being deleted": {
			old: rolling(time.Hour), set: set("csi", 3, 1, 2),
			gate: &gates.Gate{Reason: "PodsRunning"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := status.Input{
				Old: c.old, Now: moment(), Generation: 7, TargetVersion: version, Expected: []string{"csi"},
				DaemonSets: []appsv1.DaemonSet{c.set},
				Nodes:      []corev1.Node{node("a", corev1.ConditionTrue)}, Pods: c.pods, Pools: onePool(),
				Deleting: c.gate,
			}
			fresh, _ := status.Compute(in)
			if got := status.Deadline(in, fresh); !got.Equal(c.want) {
				t.Errorf("looked at again at %s, want %s", got, c.want)
			}
		})
	}
}

// A status that is computed again from itself is the same, down to the times: nothing is written for it.
func TestSameAgain(t *testing.T) {
	t.Parallel()
	in := status.Input{
		Now: moment(), TargetVersion: version, Expected: []string{"csi"},
		DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 1)}, NotServed: []string{"x"},
		Pools: []pools.Outcome{{Name: "local"}},
	}
	first, _ := status.Compute(in)
	in.Old, in.Now = first, moment().Add(time.Hour)
	second, events := status.Compute(in)
	if diff := cmp.Diff(first, second); diff != "" || len(events) > 0 {
		t.Errorf("events %v, status (-first +second):\n%s", events, diff)
	}
}

// kubevirt wrote conditions without a reason and a version that is not ours to compare.
func TestTakeover(t *testing.T) {
	t.Parallel()
	got, events := status.Compute(status.Input{
		Old: v1beta1.HostPathProvisionerStatus{
			ObservedVersion: "v0.25.2", TargetVersion: "v0.25.2",
			Conditions: []metav1.Condition{
				{Type: "Available", Status: "True"},
				{Type: "Progressing", Status: "False"},
				{Type: "Upgradeable", Status: "True"},
			},
		},
		Now: moment(), TargetVersion: version, Expected: []string{"csi"},
		DaemonSets: []appsv1.DaemonSet{set("csi", 1, 1, 0)}, Pools: onePool(),
	})
	want := map[string]string{
		"Available":   "False NotRolledOut",
		"Progressing": "True Upgrading",
		"Degraded":    "False AsExpected",
	}
	if diff := cmp.Diff(want, conditions(got)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if len(events) != 1 || events[0].Reason != "UpgradeStarted" || got.ObservedVersion != "v0.25.2" {
		t.Errorf("events %v, observed %s", events, got.ObservedVersion)
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	nodes := []corev1.Node{
		node("a", corev1.ConditionTrue),
		node("b", corev1.ConditionTrue),
		node("c", corev1.ConditionFalse),
	}
	other := pod("legacy", "a")
	other.Labels = map[string]string{"app.kubernetes.io/component": "legacy-provisioner"}
	going := pod("going", "b")
	going.DeletionTimestamp = &metav1.Time{Time: moment()}
	for name, c := range map[string]struct {
		pool pools.Outcome
		pods []corev1.Pod
		want v1beta1.StoragePoolStatus
	}{
		"present everywhere": {
			pods: []corev1.Pod{
				pod("p", "a", poolIs("x", names.PoolPresent, "")),
				pod("q", "b", poolIs("x", names.PoolPresent, "")), other, going,
			},
			want: v1beta1.StoragePoolStatus{Phase: v1beta1.PoolReady, DesiredReady: 2, CurrentReady: 2},
		},
		"not selected does not count": {
			pods: []corev1.Pod{
				pod("p", "a", poolIs("x", names.PoolPresent, "")),
				pod("q", "b", poolIs("x", names.PoolNotSelected, "")),
			},
			want: v1beta1.StoragePoolStatus{Phase: v1beta1.PoolReady, DesiredReady: 1, CurrentReady: 1},
		},
		"selected nowhere": {
			pods: []corev1.Pod{pod("q", "b", poolIs("x", names.PoolNotSelected, ""))},
			want: v1beta1.StoragePoolStatus{
				Phase:   v1beta1.PoolPreparing,
				Message: "no node that runs the driver is selected for it",
			},
		},
		"no pod": {
			want: v1beta1.StoragePoolStatus{Phase: v1beta1.PoolPreparing, Message: "the driver runs on no node yet"},
		},
		"silent": {
			pods: []corev1.Pod{
				pod("q", "b", poolIs("y", names.PoolPresent, "")),
				pod("p", "a", poolIs("x", names.PoolPresent, "")),
			},
			want: v1beta1.StoragePoolStatus{
				Phase: v1beta1.PoolPreparing, DesiredReady: 2, CurrentReady: 1,
				Message: "waits for a report from the nodes b",
			},
		},
		"not connected": {
			pods: []corev1.Pod{
				pod("q", "b", unknown(poolIs("x", names.PoolPresent, ""))),
				pod("r", "c", unknown(poolIs("x", names.PoolPresent, ""))),
				pod("p", "a", poolIs("x", names.PoolPresent, "")),
			},
			want: v1beta1.StoragePoolStatus{
				Phase: v1beta1.PoolDegraded, DesiredReady: 3, CurrentReady: 1,
				Message: "node c is not ready",
			},
		},
		"absent, and a dead node": {
			pods: []corev1.Pod{
				pod("r", "c", poolIs("x", names.PoolPresent, "")),
				pod("p", "a", poolIs("x", names.PoolAbsent, "no marker")),
			},
			want: v1beta1.StoragePoolStatus{
				Phase: v1beta1.PoolDegraded, DesiredReady: 2,
				Message: "node a: no marker; node c is not ready",
			},
		},
		"there, and no volume can be made": {
			pods: []corev1.Pod{
				pod("q", "b", poolIs("x", names.PoolPresent, "")),
				pod("p", "a", poolIs("x", names.PoolDegraded, "no room")),
			},
			want: v1beta1.StoragePoolStatus{
				Phase: v1beta1.PoolDegraded, DesiredReady: 2, CurrentReady: 1,
				Message: "node a: no room",
			},
		},
		"broken": {
			pool: pools.Outcome{Broken: "left out: why"},
			want: v1beta1.StoragePoolStatus{Phase: v1beta1.PoolDegraded, Message: "left out: why"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.pool.Name, c.want.Name = "x", "x"
			got, _ := status.Compute(
				status.Input{Now: moment(), Nodes: nodes, Pods: c.pods, Pools: []pools.Outcome{c.pool, c.pool}})
			if diff := cmp.Diff([]v1beta1.StoragePoolStatus{c.want}, got.StoragePoolStatuses); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesFitTheAPI(t *testing.T) {
	t.Parallel()
	got, _ := status.Compute(status.Input{Now: moment(), RenderError: errors.New(strings.Repeat("é", 40000))})
	if message := meta.FindStatusCondition(got.Conditions, v1beta1.Degraded).Message; len(message) > 32768 {
		t.Errorf("a message of %d bytes, the API allows 32768", len(message))
	}
}

// kubevirt's definition lets a condition have no time, and ours does not.
func TestConditionsWithoutATimeAreMadeAnew(t *testing.T) {
	t.Parallel()
	old := v1beta1.HostPathProvisionerStatus{Conditions: []metav1.Condition{
		{Type: v1beta1.Available, Status: metav1.ConditionFalse, Reason: "Complete"},
		{Type: v1beta1.Degraded, Status: metav1.ConditionFalse, Reason: "Complete"},
	}}
	got, _ := status.Compute(status.Input{Now: moment(), Old: old})
	for _, condition := range got.Conditions {
		if !condition.LastTransitionTime.Time.Equal(moment()) {
			t.Errorf("%s is of %s, want of now", condition.Type, condition.LastTransitionTime)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	resource := &v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	resource.Status.ObservedVersion = "v0.25.2"
	first, events := status.LeftAlone(resource, moment(), status.ReasonUnsupportedName, "another")
	if len(events) != 1 || events[0].Reason != status.EventDegraded {
		t.Errorf("events are %v", events)
	}
	want := map[string]string{"Degraded": "True UnsupportedName"}
	if diff := cmp.Diff(want, conditions(first)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	resource.Status = first
	second, events := status.LeftAlone(resource, moment().Add(time.Hour), status.ReasonUnsupportedName, "another")
	if diff := cmp.Diff(first, second); diff != "" || len(events) > 0 {
		t.Errorf("it changes, with the events %v (-first +second):\n%s", events, diff)
	}
}
