package pods

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// Surroundings are what the successors of pods that leave must keep apart from.
type Surroundings struct {
	nodes map[string]corev1.Node
	pods  []corev1.Pod // without those that leave
}

// Around looks at the surroundings of a namespace's pods that leave together. What the user may not list is not there.
func Around(ctx context.Context, api kubernetes.Interface, leaving []corev1.Pod) (Surroundings, error) {
	s := Surroundings{nodes: map[string]corev1.Node{}}
	namespace, bound := "", false
	for _, pod := range leaving {
		namespace, bound = pod.Namespace, bound || len(apartTerms(pod))+len(spreadConstraints(pod)) > 0
	}
	if !bound {
		return s, nil
	}
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	switch {
	case err == nil:
		for _, node := range nodes.Items {
			s.nodes[node.Name] = node
		}
	case !apierrors.IsForbidden(err):
		return s, fmt.Errorf("look at the nodes: %w", err)
	}
	all, err := api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		all, err = api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return s, fmt.Errorf("look which pods run beside those of namespace %s: %w", namespace, err)
	}
	s.pods = slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return ended(pod) || slices.ContainsFunc(leaving, func(is corev1.Pod) bool {
			return is.Namespace == pod.Namespace && is.Name == pod.Name
		})
	})
	return s, nil
}

// apartTerms are the terms of a pod's required podAntiAffinity.
func apartTerms(pod corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// spreadConstraints are those of a pod that keep it from nodes.
func spreadConstraints(pod corev1.Pod) []corev1.TopologySpreadConstraint {
	return slices.DeleteFunc(slices.Clone(pod.Spec.TopologySpreadConstraints),
		func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable != corev1.DoNotSchedule })
}

// Unfit is why a pod cannot be scheduled on a node, "" where nothing forbids it: taints, its nodeSelector and affinity,
// and the pods around.
func (s Surroundings) Unfit(pod corev1.Pod, node *corev1.Node) string {
	taint, untolerated := untoleratedTaint(pod, node)
	switch {
	case untolerated:
		return fmt.Sprintf("pod %s does not tolerate the taint %s of node %s", pod.Name, taint.ToString(), node.Name)
	case leftOut(pod, node):
		return fmt.Sprintf("the nodeSelector or affinity of pod %s leaves node %s out", pod.Name, node.Name)
	}
	return cmp.Or(s.beside(pod, node), s.skewed(pod, node))
}

// beside is next to which pod the podAntiAffinity of another does not let it run.
func (s Surroundings) beside(pod corev1.Pod, node *corev1.Node) string {
	for _, term := range apartTerms(pod) {
		domain, has := node.Labels[term.TopologyKey]
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if !has || err != nil {
			continue
		}
		for _, other := range s.pods {
			is, there := s.nodes[other.Spec.NodeName].Labels[term.TopologyKey]
			near := there && is == domain || other.Spec.NodeName == node.Name
			if near && covers(term, pod.Namespace, other.Namespace) && selector.Matches(labels.Set(other.Labels)) {
				return fmt.Sprintf("pod %s may not run beside %s on node %s (podAntiAffinity on %s)", pod.Name,
					other.Name, node.Name, term.TopologyKey)
			}
		}
	}
	return ""
}

// covers reports whether a term of a pod in namespace own is about the pods of another. Of a selector of namespaces
// only the empty one is known to: it selects all.
func covers(term corev1.PodAffinityTerm, own, other string) bool {
	if of := term.NamespaceSelector; of != nil && len(of.MatchLabels)+len(of.MatchExpressions) == 0 {
		return true
	}
	return slices.Contains(term.Namespaces, other) ||
		len(term.Namespaces) == 0 && term.NamespaceSelector == nil && other == own
}

// skewed is which of a pod's topologySpreadConstraints does not let it run on a node.
func (s Surroundings) skewed(pod corev1.Pod, node *corev1.Node) string {
	all := spreadConstraints(pod)
	for _, c := range all {
		domain, has := node.Labels[c.TopologyKey]
		if !has {
			return fmt.Sprintf("pod %s may not run on node %s, which lacks a label (topologySpreadConstraints on %s)",
				pod.Name, node.Name, c.TopologyKey)
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			continue
		}
		counts := s.countDomains(pod, all, c, selector)
		if len(counts) == 0 {
			continue
		}
		there, fewest := counts[domain], slices.Min(slices.Collect(maps.Values(counts)))
		if selector.Matches(labels.Set(pod.Labels)) {
			there++
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
			fewest = 0
		}
		if there-fewest > int(c.MaxSkew) {
			return fmt.Sprintf("pod %s may not run on node %s, where it would be one of %d while another place "+
				"has %d (topologySpreadConstraints on %s)", pod.Name, node.Name, there, fewest, c.TopologyKey)
		}
	}
	return ""
}

// countDomains counts the pods that a constraint of all those of a pod selects, in each domain that it is about.
func (s Surroundings) countDomains(pod corev1.Pod, all []corev1.TopologySpreadConstraint,
	c corev1.TopologySpreadConstraint, selector labels.Selector,
) map[string]int {
	selected := map[string]int{} // by the node
	for _, other := range s.pods {
		differs := func(key string) bool {
			value, has := pod.Labels[key]
			return has && other.Labels[key] != value
		}
		if other.Namespace == pod.Namespace && other.DeletionTimestamp == nil &&
			selector.Matches(labels.Set(other.Labels)) && !slices.ContainsFunc(c.MatchLabelKeys, differs) {
			selected[other.Spec.NodeName]++
		}
	}
	counts := map[string]int{}
	for name, node := range s.nodes {
		if eligible(pod, &node, all, c) {
			counts[node.Labels[c.TopologyKey]] += selected[name]
		}
	}
	return counts
}

// eligible reports whether a constraint is about a node: it has the labels of all of them, and the pod may be there as
// far as the policies ask.
func eligible(pod corev1.Pod, node *corev1.Node, all []corev1.TopologySpreadConstraint,
	c corev1.TopologySpreadConstraint,
) bool {
	lacks := func(c corev1.TopologySpreadConstraint) bool {
		_, has := node.Labels[c.TopologyKey]
		return !has
	}
	if slices.ContainsFunc(all, lacks) {
		return false
	}
	if p := c.NodeAffinityPolicy; (p == nil || *p == corev1.NodeInclusionPolicyHonor) && leftOut(pod, node) {
		return false
	}
	_, untolerated := untoleratedTaint(pod, node)
	return !untolerated || c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy != corev1.NodeInclusionPolicyHonor
}
