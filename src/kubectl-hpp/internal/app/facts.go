package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/explain"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
)

// driverPods is the label of the pods of the nodes that the chart sets.
const driverPods = "app.kubernetes.io/component=csi-driver,app.kubernetes.io/part-of=hostpath-provisioner"

// access is how explain, doctor and report reach a cluster.
type access struct {
	api        func() (kubernetes.Interface, error)
	namespace  func() (string, error)
	controller func(context.Context) (*remote.Controller, error)
	driver     func() string // that the user has named, else ""
	context    func() string // of the kubeconfig
	version    string        // of this program
	now        func() time.Time
}

// facts reads what there is to know about a namespace's claims and pods, or with "" those of all. What may not be read
// is said in the facts, and is no error.
func (a access) facts(ctx context.Context, api kubernetes.Interface, namespace string) (f explain.Facts, err error) {
	controller, err := a.controller(ctx)
	at := cluster.Controller{Driver: cmp.Or(a.driver(), names.Driver), TopologyKey: topologyKey}
	away, missing := "", ""
	switch {
	case apierrors.IsForbidden(err):
		missing = err.Error()
	case errors.Is(err, cluster.ErrNoController):
		away = err.Error()
	case err != nil:
		return f, err
	default:
		at = controller.At
	}
	if f.State, err = cluster.Read(ctx, api, at, namespace); err != nil {
		return f, err
	}
	f.Away, f.Now = away, a.now()
	if missing != "" {
		f.Missing = append(f.Missing, missing)
	}
	if err = readOthers(ctx, api, &f); err != nil || controller == nil {
		return f, err
	}
	for _, ask := range []struct {
		answer any
		args   []string
	}{{&f.Reported, []string{"status"}}, {&f.Listed, []string{"volume", "list"}}} {
		switch err := controller.Ask(ctx, ask.answer, ask.args...); {
		case errors.Is(err, remote.ErrForbidden), errors.Is(err, remote.ErrVersion), errors.Is(err, remote.ErrRefused):
			if !slices.Contains(f.Missing, err.Error()) {
				f.Missing = append(f.Missing, err.Error())
			}
		case err != nil:
			f.Away = err.Error()
			return f, nil
		}
	}
	return f, nil
}

// readOthers reads the driver's pods, and the StorageClasses of all drivers.
func readOthers(ctx context.Context, api kubernetes.Interface, f *explain.Facts) error {
	classes, err := api.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	switch {
	case err == nil:
		f.Classes = classes.Items
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("list StorageClasses: %w", err)
	}
	pods, err := api.CoreV1().Pods(f.Controller.Namespace).List(ctx, metav1.ListOptions{LabelSelector: driverPods})
	switch {
	case err == nil:
		f.DriverPods = pods.Items
	case apierrors.IsForbidden(err):
		f.Missing = append(f.Missing, "the driver's pods were not read: you may not list pods of namespace "+
			f.Controller.Namespace)
	default:
		return fmt.Errorf("list the driver's pods: %w", err)
	}
	return nil
}

// addEvents adds what was said about an object.
func addEvents(ctx context.Context, api kubernetes.Interface, f *explain.Facts, about corev1.ObjectReference) error {
	events, missing, err := cluster.Events(ctx, api, about)
	f.Events = append(f.Events, events...)
	if missing != "" {
		f.Missing = append(f.Missing, missing)
	}
	return err
}
