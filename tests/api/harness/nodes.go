package harness

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// driverComponent and controllerComponent are label values of the driver's pods on the nodes and of the controller's.
const (
	driverComponent     = "csi-driver"
	controllerComponent = "csi-controller"
)

// Nodes plays what the scheduler and the kubelets do: pods of DaemonSets get their node, run, become ready, and end
// when deleted. It also says for the driver's pods what the driver would say about its pools, and that the CSI
// controller's Deployment is complete: with Kubernetes' own controller of Deployments the operator's would get pods
// too, and the operator is a process here.
type Nodes struct {
	s *Server

	mu    sync.Mutex
	dead  map[string]bool
	pools map[string][]corev1.PodCondition // by node
}

// StartNodes makes Node objects, ready ones, and plays them until the test ends.
func (s *Server) StartNodes(t *testing.T, nodes ...string) *Nodes {
	t.Helper()
	n := &Nodes{s: s, dead: map[string]bool{}, pools: map[string][]corev1.PodCondition{}}
	for _, name := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux",
		}}}
		s.Create(t, node)
		n.ready(t, name, corev1.ConditionTrue, time.Now())
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		n.play(stop)
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return n
}

// Pool sets what a node's driver says about a pool: condition True with reason PoolPresent, or False
// with the reason and message given.
func (n *Nodes) Pool(node, pool, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kind := corev1.PodConditionType(names.PoolCondition + pool)
	status := corev1.ConditionFalse
	if reason == names.PoolPresent {
		status = corev1.ConditionTrue
	}
	kept := []corev1.PodCondition{{Type: kind, Status: status, Reason: reason, Message: message}}
	for _, condition := range n.pools[node] {
		if condition.Type != kind {
			kept = append(kept, condition)
		}
	}
	n.pools[node] = kept
}

// Die makes a node NotReady; its kubelet does nothing more.
func (n *Nodes) Die(t *testing.T, node string) {
	t.Helper()
	n.DieSince(t, node, time.Now())
}

// DieSince makes a node NotReady since a time.
func (n *Nodes) DieSince(t *testing.T, node string, since time.Time) {
	t.Helper()
	n.mu.Lock()
	n.dead[node] = true
	n.mu.Unlock()
	n.ready(t, node, corev1.ConditionUnknown, since)
}

// Return brings a dead node back.
func (n *Nodes) Return(t *testing.T, node string) {
	t.Helper()
	n.mu.Lock()
	n.dead[node] = false
	n.mu.Unlock()
	n.ready(t, node, corev1.ConditionTrue, time.Now())
}

func (n *Nodes) ready(t *testing.T, name string, status corev1.ConditionStatus, since time.Time) {
	t.Helper()
	node := Get(t, n.s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, Reason: "Played", LastTransitionTime: metav1.NewTime(since),
		LastHeartbeatTime: metav1.Now(),
	}}
	if err := n.s.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatalf("status of node %s: %v", name, err)
	}
}

// play looks at all pods again and again; what fails is tried again at the next look.
func (n *Nodes) play(stop <-chan struct{}) {
	ctx := context.Background()
	for {
		select {
		case <-stop:
			return
		case <-time.After(interval):
		}
		var pods corev1.PodList
		if err := n.s.Client.List(ctx, &pods); err != nil {
			continue
		}
		for i := range pods.Items {
			_ = n.step(ctx, &pods.Items[i])
		}
		_ = n.complete(ctx)
	}
}

// complete says of the CSI controller's Deployment that all its pods are there.
func (n *Nodes) complete(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := n.s.Client.List(ctx, &deployments, client.InNamespace(Namespace), client.MatchingLabels{
		"app.kubernetes.io/component": controllerComponent,
	}); err != nil {
		return err
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		replicas := *deployment.Spec.Replicas
		wanted := appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas,
			AvailableReplicas: replicas,
		}
		if deployment.DeletionTimestamp != nil || reflect.DeepEqual(deployment.Status, wanted) {
			continue
		}
		deployment.Status = wanted
		if err := n.s.Client.Status().Update(ctx, deployment); err != nil {
			return err
		}
	}
	return nil
}

// step does the next thing for a pod.
func (n *Nodes) step(ctx context.Context, pod *corev1.Pod) error {
	node := pod.Spec.NodeName
	if node == "" {
		node = placedOn(pod)
		if node == "" {
			return nil
		}
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		return n.s.Client.SubResource("binding").Create(ctx, pod, binding)
	}
	n.mu.Lock()
	dead, pools := n.dead[node], n.pools[node]
	n.mu.Unlock()
	switch {
	case dead:
		return nil
	case pod.DeletionTimestamp != nil:
		return n.s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}
	wanted := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}}
	if pod.Labels["app.kubernetes.io/component"] == driverComponent {
		wanted.Conditions = append(wanted.Conditions, pools...)
	}
	if pod.Status.Phase == wanted.Phase && reflect.DeepEqual(plain(pod.Status.Conditions), wanted.Conditions) {
		return nil
	}
	for i := range wanted.Conditions {
		wanted.Conditions[i].LastTransitionTime = metav1.Now()
	}
	pod.Status = wanted
	return client.IgnoreNotFound(n.s.Client.Status().Update(ctx, pod))
}

// placedOn is the node that the DaemonSet controller means a pod for.
func placedOn(pod *corev1.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// plain leaves out when a condition changed.
func plain(conditions []corev1.PodCondition) []corev1.PodCondition {
	all := make([]corev1.PodCondition, 0, len(conditions))
	for _, c := range conditions {
		all = append(all, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return all
}

// Pods are the pods of a DaemonSet of the release, by its component label.
func (s *Server) Pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(Namespace), client.MatchingLabels{
		"app.kubernetes.io/component": component,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list pods of %s: %w", component, err)
	}
	return pods.Items, nil
}
