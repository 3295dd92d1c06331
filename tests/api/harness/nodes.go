package harness

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// driverComponent, controllerComponent and mounterComponent are label values of the driver's pods on the nodes, of the
// controller's and of the mounters'.
const (
	driverComponent     = "csi-driver"
	controllerComponent = "csi-controller"
	mounterComponent    = "mounter"
)

// Nodes plays what the scheduler and the kubelets do: pods of DaemonSets get their node, run, become ready, and end
// when deleted. It also says of the driver's pods what the CSI controller would say about their pools, unless a real
// one does, and that its Deployment is complete, and a mounter's as soon as its claim is bound: with Kubernetes' own
// controller of Deployments the operator's would get pods too, and the operator is a process here.
type Nodes struct {
	s *Server

	mu    sync.Mutex
	dead  map[string]bool
	pools map[string][]corev1.PodCondition // by node; nil as long as nobody has called Pool
}

// StartNodes makes Node objects, ready ones, and plays them until the test ends.
func (s *Server) StartNodes(t *testing.T, nodes ...string) *Nodes {
	t.Helper()
	n := &Nodes{s: s, dead: map[string]bool{}}
	for _, name := range nodes {
		n.Join(t, name)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		n.play(stop)
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return n
}

// Join makes a Node object, a ready one.
func (n *Nodes) Join(t *testing.T, name string, taints ...corev1.Taint) {
	t.Helper()
	hostname, _, _ := strings.Cut(name, ".")
	n.s.Create(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: hostname, corev1.LabelOSStable: "linux",
		}},
		Spec: corev1.NodeSpec{Taints: taints},
	})
	n.ready(t, name, corev1.ConditionTrue, time.Now())
}

// Leave deletes a Node object, and what the garbage collector of pods would: the pods that are bound to it.
func (n *Nodes) Leave(t *testing.T, name string) {
	t.Helper()
	n.s.Delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	Eventually(t, "the pods of a node that is gone are gone", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := n.s.Client.List(ctx, &pods); err != nil {
			return err
		}
		var left []error
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == name {
				left = append(left, fmt.Errorf("pod %s is there", pod.Name),
					client.IgnoreNotFound(n.s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))))
			}
		}
		return errors.Join(left...)
	})
}

// Pool sets what the controller says about a pool of a node: condition True with reason PoolPresent, or False with the
// reason and message given.
func (n *Nodes) Pool(node, pool, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pools == nil {
		n.pools = map[string][]corev1.PodCondition{}
	}
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

// NoPools takes back what Pool has set.
func (n *Nodes) NoPools() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.pools)
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

// complete says of the CSI controller's Deployment, and of mounters with a claim that is bound, that all their pods are
// there.
func (n *Nodes) complete(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := n.s.Client.List(ctx, &deployments, client.InNamespace(Namespace)); err != nil {
		return err
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		switch deployment.Labels["app.kubernetes.io/component"] {
		case controllerComponent:
		case mounterComponent:
			if bound, err := n.bound(ctx, deployment); !bound || err != nil {
				continue
			}
		default:
			continue
		}
		replicas := *deployment.Spec.Replicas
		wanted := appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas,
			ReadyReplicas: replicas, AvailableReplicas: replicas,
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

// bound reports whether the claims of a Deployment's pods are.
func (n *Nodes) bound(ctx context.Context, deployment *appsv1.Deployment) (bool, error) {
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: Namespace, Name: volume.PersistentVolumeClaim.ClaimName}
		if err := n.s.Client.Get(ctx, key, claim); err != nil || claim.Status.Phase != corev1.ClaimBound {
			return false, err
		}
	}
	return true, nil
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
	dead, pools, played := n.dead[node], n.pools[node], n.pools != nil
	n.mu.Unlock()
	switch {
	case dead:
		return nil
	case pod.DeletionTimestamp != nil:
		return n.s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}
	wanted := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}}
	if pod.Labels["app.kubernetes.io/component"] == driverComponent {
		wanted.Conditions = append(wanted.Conditions, pools...)
	}
	known, reported := pod.Status.Conditions, []corev1.PodCondition(nil)
	if !played {
		known, reported = apart(known)
	}
	if pod.Status.Phase == wanted.Phase && reflect.DeepEqual(plain(known), wanted.Conditions) {
		return nil
	}
	for i := range wanted.Conditions {
		wanted.Conditions[i].LastTransitionTime = metav1.Now()
	}
	wanted.Conditions = append(wanted.Conditions, reported...)
	pod.Status = wanted
	return client.IgnoreNotFound(n.s.Client.Status().Update(ctx, pod))
}

// placedOn is the node that the DaemonSet controller means a pod for.
func placedOn(pod *corev1.Pod) string {
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
