package cluster_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// controllerPod is one of the controller of a driver, as the chart makes it.
func controllerPod(namespace, name, driver string, ready bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/component": "csi-controller", "app.kubernetes.io/part-of": "hostpath-provisioner",
			"app.kubernetes.io/version": "0.2.0", "app.kubernetes.io/instance": "hpp",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "provisioner", Args: []string{"--driver-name=none"}},
			{Name: "controller", Args: []string{"--driver-name=" + driver, "--topology-key=topology/node"}},
		}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "controller", Ready: ready}, {Name: "provisioner", Ready: true},
		}},
	}
}

func TestFindController(t *testing.T) {
	one, other := controllerPod("hpp", "hpp-1", "a.example", true), controllerPod("other", "hpp-2", "b.example", true)
	unready := controllerPod("hpp", "hpp-0", "a.example", false)
	for name, test := range map[string]struct {
		pods              []runtime.Object
		namespace, driver string
		want, says        string
	}{
		"the only one":  {[]runtime.Object{one}, "", "", "hpp-1", ""},
		"two replicas":  {[]runtime.Object{one, controllerPod("hpp", "hpp-0", "a.example", true)}, "", "", "hpp-0", ""},
		"one is ready":  {[]runtime.Object{one, unready}, "", "", "hpp-1", ""},
		"by driver":     {[]runtime.Object{one, other}, "", "b.example", "hpp-2", ""},
		"by namespace":  {[]runtime.Object{one, other}, "hpp", "", "hpp-1", ""},
		"several":       {[]runtime.Object{one, other}, "", "", "", "--driver a.example, or --driver b.example"},
		"none":          {nil, "hpp", "", "", "ready in namespace hpp"},
		"none is ready": {[]runtime.Object{unready}, "", "", "", "pod hpp/hpp-0 is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cluster.FindController(
				t.Context(),
				fake.NewClientset(test.pods...),
				test.namespace,
				test.driver,
			)
			if test.says != "" {
				if !errors.Is(err, cluster.ErrNoController) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || got.Pod != test.want || got.TopologyKey != "topology/node" || got.Version != "0.2.0" ||
				got.Release != "hpp" || !strings.HasSuffix(got.Driver, ".example") {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestPodsOfOneNamespaceOnly: who may not list pods everywhere is told what to say.
func TestPodsOfOneNamespaceOnly(t *testing.T) {
	api := fake.NewClientset()
	api.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	})
	_, err := cluster.FindController(t.Context(), api, "", "")
	if !errors.Is(err, cluster.ErrNoController) || !strings.Contains(err.Error(), "--driver-namespace NAMESPACE") {
		t.Errorf("got %v", err)
	}
}
