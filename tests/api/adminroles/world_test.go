package adminroles_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

const (
	full = harness.Release + "-hostpath-provisioner"
	// The pods, as Kubernetes would call them.
	controllerPod = full + "-controller-7bd94f5c66-x2v7k"
	driverPod     = full + "-csi-zw2hd"
	likePod       = full + "-controller-other"
	elsewhere     = metav1.NamespaceDefault
)

// world is a control plane with the chart, its roles, and people who have them.
type world struct {
	*harness.Server
	people map[string]kubernetes.Interface
}

func install(t *testing.T) *world {
	t.Helper()
	w := &world{Server: harness.Start(t), people: map[string]kubernetes.Interface{}}
	values := helmcli.Values{Set: map[string]string{"adminRoles.create": "true"}}
	if out, err := w.Helm(t).Run(t, values, "install", harness.Release, helmcli.ChartDir(t)); err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	w.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}) // nobody is there to be reached
	w.pod(t, harness.Namespace, controllerPod, "controller", "csi-provisioner")
	w.pod(t, harness.Namespace, likePod, "controller")
	w.pod(t, harness.Namespace, driverPod, "driver")
	w.pod(t, elsewhere, driverPod, "driver")
	for _, role := range []string{"viewer", "operator", "mover"} {
		w.bind(t, role, full+"-admin-"+role)
	}
	exec := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"},
	}
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}
	volumes := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"create"},
	}
	for who, rules := range map[string][]rbacv1.PolicyRule{
		"maker": {exec, pods}, "stranger": {exec}, "provisioner": {volumes},
	} {
		w.Create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: who}, Rules: rules})
		w.bind(t, who, who)
	}
	return w
}

// pod makes one that is on node-1.
func (w *world) pod(t *testing.T, namespace, name string, containers ...string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: "node-1"},
	}
	for _, container := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: "image"})
	}
	w.Create(t, pod)
}

// bind gives somebody a role as the documentation says: the ClusterRole in the whole cluster, and the Role of its name,
// where there is one.
func (w *world) bind(t *testing.T, who, role string) {
	t.Helper()
	config := rest.CopyConfig(w.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who}
	person, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.people[who] = person
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: who}}
	w.Create(t,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: who}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: who}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		})
}

// may asks whether somebody may do something in a namespace, or in the whole cluster where that is "".
func (w *world) may(t *testing.T, who string, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: who, ResourceAttributes: &what},
	}
	w.Create(t, review)
	return review.Status.Allowed
}

// run is a command in a pod.
type run struct {
	namespace, pod string
	options        corev1.PodExecOptions
}

// here is a command in a container of a pod of the release's namespace.
func here(pod, container string, command ...string) run {
	return run{harness.Namespace, pod, corev1.PodExecOptions{Container: container, Command: command, Stdout: true}}
}

// errReached is what the API server says of a command that it would have run: the node has no address.
var errReached = errors.New("no preferred addresses found")

// exec asks for a command as SPDY does, by POST, and as WebSocket does, by GET.
func (w *world) exec(ctx context.Context, who string, r run) error {
	var all error
	for _, verb := range []string{"POST", "GET"} {
		err := w.people[who].CoreV1().RESTClient().Verb(verb).Namespace(r.namespace).Resource("pods").Name(r.pod).
			SubResource("exec").VersionedParams(&r.options, scheme.ParameterCodec).Do(ctx).Error()
		switch {
		case err == nil:
			err = errors.New(verb + " was answered")
		case strings.Contains(err.Error(), errReached.Error()):
			err = errReached
		}
		if all != nil && all.Error() != err.Error() {
			return errors.Join(all, err) // the two differ
		}
		all = err
	}
	return all
}
