// Package cluster is what the plugin reads of Kubernetes, with the rights of its user.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ErrNoController is for a cluster, or a namespace of it, without a controller that can be asked.
var ErrNoController = errors.New("no controller can be asked")

// Controller is a pod of the controller, and what its command line and labels say of the installation.
type Controller struct {
	Namespace, Pod, Version      string
	Driver, TopologyKey, Release string
}

// Labels that the chart sets.
const (
	labelComponent = "app.kubernetes.io/component"
	partOf         = "app.kubernetes.io/part-of=hostpath-provisioner"
	component      = labelComponent + "=csi-controller," + partOf
)

// FindController gives the controller of a driver, or of the only one where driver is "". It is looked for in a
// namespace, or in all where namespace is "".
func FindController(
	ctx context.Context, api kubernetes.Interface, namespace, driver string,
) (found Controller, err error) {
	pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: component})
	switch {
	case apierrors.IsForbidden(err) && namespace == "":
		return found, fmt.Errorf("%w: you may not list pods in all namespaces; say where the driver is installed: "+
			"--driver-namespace NAMESPACE: %w", ErrNoController, err)
	case err != nil:
		return found, fmt.Errorf("look for the controller's pods: %w", err)
	}
	var all []Controller
	waiting := ""
	for _, pod := range pods.Items {
		c := controllerOf(pod)
		switch {
		case driver != "" && c.Driver != driver:
		case !ready(pod):
			waiting = fmt.Sprintf("; pod %s/%s is not ready", pod.Namespace, pod.Name)
		default:
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Controller) int {
		return strings.Compare(a.Driver+" "+a.Pod, b.Driver+" "+b.Pod)
	})
	drivers := make([]string, len(all))
	for i, c := range all {
		drivers[i] = c.Driver
	}
	switch drivers = slices.Compact(drivers); len(drivers) {
	case 0:
		return found, fmt.Errorf("%w: no pod with the labels %s is ready%s%s", ErrNoController, component,
			in(namespace), waiting)
	case 1:
		return all[0], nil
	}
	return found, fmt.Errorf("%w: there are several drivers; say which: --driver %s", ErrNoController,
		strings.Join(drivers, ", or --driver "))
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

func ready(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.Name == "controller" && c.Ready })
}

func controllerOf(pod corev1.Pod) Controller {
	c := Controller{
		Namespace: pod.Namespace, Pod: pod.Name, Version: pod.Labels["app.kubernetes.io/version"],
		Release: pod.Labels["app.kubernetes.io/instance"],
	}
	for _, container := range pod.Spec.Containers {
		for _, arg := range container.Args {
			if value, ok := strings.CutPrefix(arg, "--driver-name="); ok && container.Name == "controller" {
				c.Driver = value
			}
			if value, ok := strings.CutPrefix(arg, "--topology-key="); ok && container.Name == "controller" {
				c.TopologyKey = value
			}
		}
	}
	return c
}
