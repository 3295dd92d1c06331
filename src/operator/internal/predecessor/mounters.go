package predecessor

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// findMounters are the Deployments of kubevirt's that mount a pool's claim on a node.
func (p *Predecessor) findMounters(ctx context.Context) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	selector := []client.ListOption{client.HasLabels{poolLabel}, client.MatchingLabels{appLabel: provisioner}}
	if err := p.Live.List(ctx, &list, selector...); err != nil {
		return nil, fmt.Errorf("find kubevirt's mounters: list Deployments: %w", advise(err))
	}
	return slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool { return !inherited(&d) }), nil
}

// removeIdle removes the mounters that nobody needs, and forgets them.
func (p *Predecessor) removeIdle(ctx context.Context, pools []v1beta1.StoragePool, ours []appsv1.Deployment) error {
	if len(p.mounters) == 0 {
		return nil
	}
	nodes, err := p.listNodes(ctx)
	if err != nil {
		return err
	}
	var kept []appsv1.Deployment
	for i := range p.mounters {
		mounter := &p.mounters[i]
		if !isMounterIdle(mounter, pools, nodes, ours) {
			kept = append(kept, *mounter)
		} else if removeErr := p.remove(ctx, mounter); removeErr != nil {
			kept, err = append(kept, *mounter), removeErr
		}
	}
	p.mounters = kept
	return err
}

// isMounterIdle reports whether a mounter of kubevirt's may go: its pool has a claim no longer, its node is gone, or
// one of ours is available for both. Where only one pod may have the claim, ours has no place until theirs has gone.
// What it has mounted stays mounted, and in use.
func isMounterIdle(
	theirs *appsv1.Deployment, pools []v1beta1.StoragePool, nodes []corev1.Node, ours []appsv1.Deployment,
) bool {
	pool := slices.IndexFunc(pools, func(pool v1beta1.StoragePool) bool {
		return pool.PVCTemplate != nil && pool.Name+poolSuffix == theirs.Labels[poolLabel]
	})
	if pool < 0 {
		return true
	}
	on := nodeOf(theirs)
	if on != "" && !slices.ContainsFunc(nodes, func(node corev1.Node) bool { return node.Name == on }) {
		return true
	}
	alone := slices.Contains(pools[pool].PVCTemplate.AccessModes, corev1.ReadWriteOncePod)
	return slices.ContainsFunc(ours, func(d appsv1.Deployment) bool {
		return d.Labels[names.PoolLabel] == pools[pool].Name && d.Annotations[names.NodeAnnotation] == on &&
			(available(&d) || alone && d.DeletionTimestamp == nil)
	})
}

// nodeOf is the node that a mounter of kubevirt's is for; it takes the name of a node for its host name.
func nodeOf(theirs *appsv1.Deployment) string {
	affinity := theirs.Spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, requirement := range term.MatchExpressions {
			if requirement.Key == corev1.LabelHostname && len(requirement.Values) == 1 {
				return requirement.Values[0]
			}
		}
	}
	return ""
}

func available(d *appsv1.Deployment) bool {
	return d.DeletionTimestamp == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas > 0
}
