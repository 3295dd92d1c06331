package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// State is what Kubernetes says about volumes, as far as the user may read it.
type State struct {
	Controller Controller
	Claims     []corev1.PersistentVolumeClaim // all of the namespace, also of other drivers
	Volumes    []corev1.PersistentVolume      // of the controller's driver, for claims of all namespaces
	Pods       []corev1.Pod                   // those of the namespace that have a volume of a claim or of the driver
	Nodes      []corev1.Node
	Classes    []storagev1.StorageClass       // of all drivers
	Capacities []storagev1.CSIStorageCapacity // of the driver's classes
	CSINodes   []storagev1.CSINode
	DriverPods []corev1.Pod // of the nodes; these and the next are read by ReadPods
	// ControllerPods are those of the controller, also those that are not ready.
	ControllerPods []corev1.Pod
	Resources      []v1beta1.HostPathProvisioner // of an operator; read by ReadResources
	Missing        []string                      // what was not read and which right is missing, one sentence each
}

// Read reads what the user may read, of a namespace or with "" of all. A right that is missing is no error. The
// controller need not be there, only its driver's name be known.
func Read(ctx context.Context, api kubernetes.Interface, controller Controller, namespace string) (State, error) {
	s := State{Controller: controller}
	driver, core, storage := controller.Driver, api.CoreV1(), api.StorageV1()
	err := s.readAll(ctx, []listing{
		{
			"persistentvolumeclaims", within(namespace), paged(core.PersistentVolumeClaims(namespace).List),
			into(&s.Claims, nil),
		},
		{"pods", within(namespace), paged(core.Pods(namespace).List), into(&s.Pods, func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return uses(v, driver) })
		})},
		{
			"persistentvolumes", "", paged(core.PersistentVolumes().List),
			into(&s.Volumes, func(v *corev1.PersistentVolume) bool { return persistentvolume.IsOf(v, driver) }),
		},
		{"nodes", "", paged(core.Nodes().List), into(&s.Nodes, nil)},
		{"storageclasses", "", paged(storage.StorageClasses().List), into(&s.Classes, nil)},
		{
			"csistoragecapacities", within(controller.Namespace),
			paged(storage.CSIStorageCapacities(controller.Namespace).List), into(&s.Capacities, nil),
		},
		{"csinodes", "", paged(storage.CSINodes().List), into(&s.CSINodes, nil)},
	})
	s.Capacities = slices.DeleteFunc(s.Capacities, func(c storagev1.CSIStorageCapacity) bool {
		return !slices.ContainsFunc(s.Classes, func(class storagev1.StorageClass) bool {
			return class.Name == c.StorageClassName && class.Provisioner == driver
		})
	})
	return s, err
}

// ReadPods reads the pods of the installation itself.
func (s *State) ReadPods(ctx context.Context, api kubernetes.Interface) error {
	of := func(component string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return p.Labels[labelComponent] == component }
	}
	nodes, controllers := into(&s.DriverPods, of("csi-driver")), into(&s.ControllerPods, of("csi-controller"))
	list := api.CoreV1().Pods(s.Controller.Namespace).List
	missing, err := listing{
		"pods of the driver", within(s.Controller.Namespace),
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = partOf
			return list(ctx, options)
		},
		func(object runtime.Object) {
			nodes(object)
			controllers(object)
		},
	}.read(ctx)
	if missing != "" {
		s.Missing = append(s.Missing, missing)
	}
	return err
}

// ReadResources reads what an operator is to serve, if there is one.
func (s *State) ReadResources(ctx context.Context, api dynamic.Interface) error {
	missing, err := listing{
		"hostpathprovisioners", "",
		paged(api.Resource(v1beta1.GroupVersion().WithResource("hostpathprovisioners")).List),
		func(object runtime.Object) {
			var is v1beta1.HostPathProvisioner
			one, ok := object.(*unstructured.Unstructured)
			if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, &is) == nil {
				s.Resources = append(s.Resources, is)
			}
		},
	}.read(ctx)
	if missing != "" {
		s.Missing = append(s.Missing, missing)
	}
	if apierrors.IsNotFound(err) { // nor is there a definition
		return nil
	}
	return err
}

// uses reports whether a pod's volume is one of a claim, or an inline one of the driver.
func uses(v corev1.Volume, driver string) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil && v.CSI.Driver == driver
}

// listing is one list of the API.
type listing struct {
	resource, where string // as sentences name them
	page            pager.ListPageFunc
	take            func(runtime.Object)
}

// readAll reads lists at the same time, each by pages.
func (s *State) readAll(ctx context.Context, lists []listing) error {
	missing, problems := make([]string, len(lists)), make([]error, len(lists))
	var reading sync.WaitGroup
	for i, l := range lists {
		reading.Go(func() { missing[i], problems[i] = l.read(ctx) })
	}
	reading.Wait()
	s.Missing = slices.DeleteFunc(missing, func(text string) bool { return text == "" })
	return errors.Join(problems...)
}

func (l listing) read(ctx context.Context) (missing string, err error) {
	all, _, err := pager.New(l.page).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s were not read: you may not list %[1]s%s", l.resource, l.where), nil
	case err != nil:
		return "", fmt.Errorf("list %s%s: %w", l.resource, l.where, err)
	}
	return "", meta.EachListItem(all, func(object runtime.Object) error {
		l.take(object)
		return nil
	})
}

func within(namespace string) string {
	if namespace == "" {
		return " in all namespaces"
	}
	return in(namespace)
}

// paged makes a page of a typed one.
func paged[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
}

// into collects the objects that are wanted, all where wanted is nil.
func into[T any](to *[]T, wanted func(*T) bool) func(runtime.Object) {
	return func(object runtime.Object) {
		if is, ok := any(object).(*T); ok && (wanted == nil || wanted(is)) {
			*to = append(*to, *is)
		}
	}
}
