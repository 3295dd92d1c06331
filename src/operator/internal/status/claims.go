package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
)

// maxClaims is how many claims a status lists, over all pools, so that it fits into an object of the API.
const maxClaims = 2000

// blocker is why a pool that a claim provides is not at its place on a node.
type blocker struct {
	text string
	// wrong: it will not come by waiting.
	wrong bool
}

// claimStatuses are the claims of a pool, those that are not bound first, at most as many as there is room for.
func claimStatuses(in Input, pool string, room int) []v1beta1.ClaimStatus {
	var statuses []v1beta1.ClaimStatus
	for _, claim := range in.Claims.Claims {
		if claim.Pool == pool {
			statuses = append(statuses, v1beta1.ClaimStatus{Name: claim.Name, Node: claim.Node, Status: claim.Status})
		}
	}
	unbound := func(s v1beta1.ClaimStatus) int {
		if s.Status.Phase == corev1.ClaimBound {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(statuses, func(a, b v1beta1.ClaimStatus) int { return cmp.Compare(unbound(a), unbound(b)) })
	return statuses[:min(len(statuses), room)]
}

// blockers are those of a pool by node, and what is wrong with the pool on all of them.
func blockers(in Input, pool string) (byNode map[string]blocker, general []string) {
	byNode, general = problems(in, pool)
	for _, mount := range in.Claims.Mounts {
		if mount.Pool != pool || mountGoesOn(in, mount) {
			continue
		}
		if found, is := blockerOf(in, mount); is {
			byNode[mount.Node] = found
		}
	}
	for _, claim := range in.Claims.Claims {
		if claim.Pool == pool && claim.DeletionTimestamp != nil {
			// The pool may be there still, and nothing can take this back.
			of, when := "node "+cmp.Or(claim.Node, "no more"), "when its mounter ends"
			if claim.Shared {
				of, when = "all nodes", "when the last mounter ends"
			}
			general = append(general, fmt.Sprintf("somebody has deleted the claim %s of %s: it goes, with all that "+
				"is on it, %s; move the volumes before that", claim.Name, of, when))
		}
	}
	return byNode, general
}

// problems are those with the claims of a pool.
func problems(in Input, pool string) (byNode map[string]blocker, general []string) {
	byNode = map[string]blocker{}
	for _, problem := range in.Claims.Problems {
		switch {
		case problem.Pool != pool:
		case problem.Node == "":
			general = append(general, problem.Text)
		case slices.ContainsFunc(in.Claims.Mounts,
			func(m poolclaims.Mount) bool { return m.Pool == pool && m.Node == problem.Node }):
			// Its mounter is kept, and the pool may be there still.
			general = append(general, fmt.Sprintf("node %s: %s", problem.Node, problem.Text))
		default:
			byNode[problem.Node] = blocker{problem.Text, true}
		}
	}
	return byNode, general
}

// mountGoesOn reports whether a mount goes on in spite of a problem.
func mountGoesOn(in Input, mount poolclaims.Mount) bool {
	return slices.ContainsFunc(in.Claims.Problems,
		func(p poolclaims.Problem) bool { return p.Pool == mount.Pool && (p.Node == mount.Node || mount.Shared) })
}

// blockerOf is what keeps a mount from being there, if anything does.
func blockerOf(in Input, mount poolclaims.Mount) (blocker, bool) {
	is := func(claim poolclaims.Claim) bool { return claim.Pool == mount.Pool && claim.Name == mount.Claim }
	i := slices.IndexFunc(in.Claims.Claims, is)
	if i < 0 {
		return blocker{text: fmt.Sprintf("its claim %s is being made", mount.Claim)}, true
	}
	claim := in.Claims.Claims[i]
	switch {
	case claim.Status.Phase == corev1.ClaimLost:
		text := fmt.Sprintf("its claim %s has lost its volume %s", claim.Name, claim.Spec.VolumeName)
		return blocker{text, true}, true
	case claim.Status.Phase != corev1.ClaimBound:
		text := fmt.Sprintf("its claim %s (%s) is Pending since %s: kubectl describe pvc --namespace %s %s says why",
			claim.Name, describeClass(claim), claim.CreationTimestamp.UTC().Format(time.RFC3339), claim.Namespace,
			claim.Name)
		return blocker{text: text}, true
	}
	return unmounted(in, mount)
}

func describeClass(claim poolclaims.Claim) string {
	if name := claim.Spec.StorageClassName; name != nil && *name != "" {
		return "class " + *name
	}
	return "without a class: the template names none, and the cluster had no default class"
}

// unmounted says what a mounter lacks whose claim is bound.
func unmounted(in Input, mount poolclaims.Mount) (blocker, bool) {
	of := func(labels, annotations map[string]string) bool {
		return poolclaims.IsMounter(labels) && labels[names.PoolLabel] == mount.Pool &&
			annotations[names.NodeAnnotation] == mount.Node
	}
	i := slices.IndexFunc(in.Deployments,
		func(d appsv1.Deployment) bool { return d.DeletionTimestamp == nil && of(d.Labels, d.Annotations) })
	if i < 0 {
		return blocker{text: "its mounter is being made"}, true
	}
	deployment := &in.Deployments[i]
	if deployment.Status.ReadyReplicas > 0 {
		return blocker{}, false
	}
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return blocker{fmt.Sprintf("Deployment %s gets no pod: %s", deployment.Name, condition.Message), true}, true
		}
	}
	j := slices.IndexFunc(in.Mounters,
		func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && of(p.Labels, p.Annotations) })
	if j < 0 {
		return blocker{text: fmt.Sprintf("its mounter, Deployment %s, has no pod yet", deployment.Name)}, true
	}
	pod := &in.Mounters[j]
	if why := trouble(pod, in.Nodes); why != "" {
		return blocker{fmt.Sprintf("its mounter, pod %s: %s", pod.Name, why), true}, true
	}
	return blocker{text: strings.TrimSuffix(fmt.Sprintf("its mounter, pod %s, is not ready, its log says why: %s",
		pod.Name, podCondition(pod, corev1.PodReady).Message), ": ")}, true
}
