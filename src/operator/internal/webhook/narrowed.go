package webhook

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// narrowing is a selection of nodes that was changed.
type narrowing struct {
	before, after nodeaffinity.RequiredNodeAffinity
	// of are the volumes that are concerned.
	of func([]gates.Volume) []gates.Volume
	// at is the field. does and then are the sentence around the nodes.
	at         *field.Path
	does, then string
}

// narrowed are the selections of nodes that a change sets anew: that of the driver, and those of pools. Without a
// selection of the resource's the driver's is that of the base values, which may be any.
func narrowed(old, changed v1beta1.HostPathProvisionerSpec) []narrowing {
	var all []narrowing
	before, after := old.Workload, changed.Workload
	if !equality.Semantic.DeepEqual(before.NodeSelector, after.NodeSelector) ||
		!equality.Semantic.DeepEqual(before.Affinity, after.Affinity) {
		all = append(all, narrowing{
			before: nodeaffinity.NewRequiredNodeAffinity(before.NodeSelector, before.Affinity),
			after:  nodeaffinity.NewRequiredNodeAffinity(after.NodeSelector, after.Affinity),
			of:     func(volumes []gates.Volume) []gates.Volume { return volumes },
			at:     field.NewPath("spec", "workload"),
			does:   "the driver leaves nodes that have volumes,",
			then: "pods keep these volumes while they run, but until the driver is back there, none can start or end " +
				"with them, and they are not deleted",
		})
	}
	configured := pools.Names(old)
	for i, pool := range pools.FromSpec(changed) {
		for _, was := range pools.FromSpec(old) {
			if was.Name != pool.Name || equality.Semantic.DeepEqual(was.NodeSelector, pool.NodeSelector) {
				continue
			}
			all = append(all, narrowing{
				before: nodeaffinity.NewRequiredNodeAffinity(was.NodeSelector, nil),
				after:  nodeaffinity.NewRequiredNodeAffinity(pool.NodeSelector, nil),
				of: func(volumes []gates.Volume) []gates.Volume {
					return gates.InPool(volumes, pool.Name, configured)
				},
				at:   pools.FieldOf(changed, i).Child("nodeSelector"),
				does: "no new volumes are made on nodes that have some,",
				then: "those are still served",
			})
		}
	}
	return all
}

// leaves names the nodes with volumes that are selected no longer, each with how many it has; "" if there is none.
func (n narrowing) leaves(all cluster) string {
	volumes := n.of(all.volumes)
	var texts []string
	for i := range all.nodes {
		node := &all.nodes[i]
		if !matches(n.before, node) || matches(n.after, node) {
			continue
		}
		var there []gates.Volume
		for _, volume := range volumes {
			if gates.OnNode(volume.Nodes, node) {
				there = append(there, volume)
			}
		}
		if len(there) > 0 {
			texts = append(texts, fmt.Sprintf("%s (%s)", node.Name, gates.Count(there)))
		}
	}
	return gates.List(texts)
}

// matches reports whether a node is selected. A selection that cannot be read selects none.
func matches(selection nodeaffinity.RequiredNodeAffinity, node *corev1.Node) bool {
	yes, err := selection.Match(node)
	return yes && err == nil
}
