package report

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// setConditions makes the conditions of a node's pod what want makes of those that it has, nil for as they are.
func (r *Reporter) setConditions(
	ctx context.Context, node string, want func(node string, have []corev1.PodCondition) []corev1.PodCondition,
) error {
	pod, have := r.cluster.Pod(node)
	if pod == "" {
		return nil
	}
	all, last := want(node, have), r.applied[node]
	switch {
	case all == nil:
		return nil
	case slices.EqualFunc(all, have, same):
		delete(r.applied, node)
		return nil
	case slices.EqualFunc(all, last.all, same) && slices.EqualFunc(have, last.have, same) || !r.allows(node, 1):
		return nil // some of them are another writer's, and stay
	}
	err := r.cluster.SetConditions(ctx, pod, all)
	if err == nil {
		r.applied[node] = application{have, all}
	}
	return err
}

// application is what was applied last, to a pod that had something else.
type application struct{ have, all []corev1.PodCondition }

// same compares all but the message: an absent pool is looked at every few seconds, and its error need not read the
// same twice.
func same(a, b corev1.PodCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason &&
		a.LastTransitionTime.Unix() == b.LastTransitionTime.Unix()
}

// unknown are the conditions of a node that has been away for its grace.
func (r *Reporter) unknown(node string, have []corev1.PodCondition) []corev1.PodCondition {
	lost := func(c corev1.PodCondition) bool { return c.Status != corev1.ConditionUnknown }
	if r.fleet.Away(node) < r.fleet.NodeGrace || !slices.ContainsFunc(have, lost) {
		return nil
	}
	all := slices.Clone(have)
	for i := range all {
		all[i].Status, all[i].Reason = corev1.ConditionUnknown, names.PoolUnknown
		all[i].Message = "the driver of this node is not connected to the controller"
		all[i].LastTransitionTime = metav1.NewTime(r.fleet.Now())
	}
	return all
}

// conditions are those of the configured pools that have been looked at. They are nil while that is none of them: what
// was said before the driver was restarted is better than that.
func conditions(pools []nodeapi.PoolStatus) (all []corev1.PodCondition) {
	configured := 0
	for _, is := range pools {
		if is.Configured {
			configured++
			if is.Reason != nodeapi.ReasonNotChecked {
				all = append(all, condition(is))
			}
		}
	}
	if all == nil && pools != nil && configured == 0 {
		return []corev1.PodCondition{}
	}
	return all
}

// condition says what a pool is, to whoever looks at the pod.
func condition(is nodeapi.PoolStatus) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: corev1.PodConditionType(names.PoolCondition + is.Name), Status: corev1.ConditionFalse,
		Message: is.Message, LastTransitionTime: metav1.NewTime(is.Since),
	}
	if is.Served() {
		c.Status = corev1.ConditionTrue
	}
	switch {
	case is.Served() && is.Reason == nodeapi.ReasonNoNewVolumes:
		c.Reason = names.PoolDegraded
		c.Message = fmt.Sprintf("%s: its volumes are served, and none can be made: %s", is.Path, is.Message)
	case is.Served() && is.Reason != "":
		c.Reason = names.PoolDegraded
		c.Message = fmt.Sprintf("%s can be used, but %s", is.Path, is.Message)
	case is.Served():
		c.Reason = names.PoolPresent
		c.Message = fmt.Sprintf("%s can be used; enforcement of sizes: %s", is.Path, is.Enforcement)
	case is.Reason == nodeapi.ReasonNotSelected:
		c.Reason = names.PoolNotSelected
	default:
		c.Reason = names.PoolAbsent
		c.Message = fmt.Sprintf("%s: %s", is.Reason, is.Message)
	}
	return c
}
