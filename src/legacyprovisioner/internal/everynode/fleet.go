package everynode

import (
	"context"
	"fmt"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// member is a node that has a manager, or has had one: it may have directories.
type member struct {
	node string
	// address is host:port of its manager, "" while that is not ready.
	address string
	// certificate is what its manager serves, as PEM, "" before it has registered.
	certificate string
	// unsure: there is no pod now, and never was one that registered, but the DaemonSet may be about to make one.
	unsure bool
	// gone: as unsure, but the DaemonSet has all its pods. Or the node has none and is not in the ConfigMap any more.
	gone bool
}

func (m member) ready() bool { return m.address != "" && m.certificate != "" }

// fleet is all members by node, as the API says at this moment.
type fleet struct {
	members map[string]member
	// missing is how many pods the DaemonSet has yet to make. They may be for nodes that are members already, or not.
	missing int
}

// readFleet reads the members: nodes with a pod of the DaemonSet, whatever its state, and those in the ConfigMap.
// Nothing is cached: a removal must not miss a node.
func (p *Provisioner) readFleet(ctx context.Context) (fleet, error) {
	set, err := p.Client.AppsV1().DaemonSets(p.Namespace).Get(ctx, p.Managers, metav1.GetOptions{})
	if err != nil {
		return fleet{}, fmt.Errorf("read the DaemonSet of the managers: %w", err)
	}
	registry, err := p.registry(ctx)
	if err != nil {
		return fleet{}, err
	}
	pods, err := p.Client.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector),
	})
	if err != nil {
		return fleet{}, fmt.Errorf("list the pods of the managers: %w", err)
	}
	f := fleet{members: map[string]member{}}
	for node, certificate := range registry.Data {
		f.members[node] = member{node: node, certificate: certificate}
	}
	seen := map[string]bool{}
	for i := range pods.Items {
		node := nodeOf(&pods.Items[i])
		if node == "" {
			continue
		}
		seen[node] = true
		m := f.members[node]
		if m.node = node; m.address == "" {
			m.address = p.addressOf(&pods.Items[i])
		}
		f.members[node] = m
	}
	f.missing = max(0, int(set.Status.DesiredNumberScheduled)-len(seen))
	if set.Status.ObservedGeneration != set.Generation {
		f.missing = max(1, f.missing) // how many it wants is not known yet
	}
	return f, nil
}

// registry reads the ConfigMap, and makes it where there is none.
func (p *Provisioner) registry(ctx context.Context) (*corev1.ConfigMap, error) {
	api := p.Client.CoreV1().ConfigMaps(p.Namespace)
	registry, err := api.Get(ctx, p.Managers, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		registry, err = api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Managers,
			Annotations: map[string]string{"kubernetes.io/description": "Nodes that may have directories of volumes " +
				"of " + p.Provisioner + ", with the certificates of their managers. Whoever removes a node gives up " +
				"what it has."},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", p.Namespace, p.Managers, err)
	}
	return registry, nil
}

// nodeOf is the node that a pod of a DaemonSet runs on, or is to run on.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// addressOf is where a manager answers, "" while its pod is not ready.
func (p *Provisioner) addressOf(pod *corev1.Pod) string {
	if pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
		return ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return net.JoinHostPort(pod.Status.PodIP, p.Port)
		}
	}
	return ""
}

// divide gives the members that are ready, and those that are away.
func (f fleet) divide() (ready, away []member) {
	for _, m := range f.members {
		if m.ready() {
			ready = append(ready, m)
		} else {
			away = append(away, m)
		}
	}
	return ready, away
}

// choose gives the nodes of those names.
func (f fleet) choose(nodes []string) []member {
	chosen := make([]member, 0, len(nodes))
	for _, node := range nodes {
		m, found := f.members[node]
		if !found {
			m = member{node: node, unsure: f.missing > 0, gone: f.missing == 0}
		}
		chosen = append(chosen, m)
	}
	return chosen
}

// nodesOf are the names of members.
func nodesOf(members []member) []string {
	all := make([]string, 0, len(members))
	for _, m := range members {
		all = append(all, m.node)
	}
	return all
}

// together is how many managers are asked at the same time.
const together = 32

// forEachMember does something for all members, and gives the errors by node.
func forEachMember(members []member, do func(member) error) map[string]error {
	faults := map[string]error{}
	var mu sync.Mutex
	var running sync.WaitGroup
	free := make(chan struct{}, together)
	for _, m := range members {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			if err := do(m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults[m.node] = err
			}
		})
	}
	running.Wait()
	return faults
}
