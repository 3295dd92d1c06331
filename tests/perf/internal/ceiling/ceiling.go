// Package ceiling puts a driver that does nothing into a cluster, in a copy of the real driver's DaemonSet: what the
// burst reaches with it is the most that Kubernetes lets any driver reach there.
package ceiling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
)

const (
	name   = "perf-ceiling" // of everything it makes
	driver = "ceiling.perf.hostpath-provisioner"
	image  = "perf/ceiling:latest"
	// container is the real driver's in its DaemonSet.
	container = "driver"
	// installedBy is the label by which the two DaemonSets distinguish their pods.
	installedBy = "app.kubernetes.io/instance"
	// patience is for the driver's pods to start or to end.
	patience = 2 * time.Minute
)

// Ceiling is an installed driver that does nothing.
type Ceiling struct {
	client kubernetes.Interface
	set    *appsv1.DaemonSet
}

// Install builds the driver from the tests module in folder tests, and installs it beside the
// real one, whose DaemonSet it copies.
func Install(
	ctx context.Context, c *kindcluster.Cluster, client kubernetes.Interface, real *appsv1.DaemonSet, tests string,
) (*Ceiling, error) {
	if err := push(ctx, c, tests); err != nil {
		return nil, err
	}
	set, err := Copy(real)
	if err != nil {
		return nil, err
	}
	k := &Ceiling{client: client, set: set}
	if err := k.Remove(ctx); err != nil { // of a run that was killed
		return nil, err
	}
	if err := k.create(ctx); err != nil {
		return nil, errors.Join(err, k.Remove(ctx))
	}
	return k, nil
}

func push(ctx context.Context, c *kindcluster.Cluster, tests string) error {
	dir, err := os.MkdirTemp("", "hpp-ceiling-")
	if err != nil {
		return fmt.Errorf("make a folder for the driver that does nothing: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "ceiling")
	target := compile.Target{
		Dir: tests, Package: "./perf/ceiling", OS: runtime.GOOS, Arch: runtime.GOARCH, Output: binary,
	}
	if err := compile.Run(ctx, target); err != nil {
		return err
	}
	_, err = c.PushBinary(ctx, binary, "/ceiling", image)
	return err
}

// Copy is the real driver's DaemonSet with the driver that does nothing in the driver's place: another name for the
// driver and its socket, everything else the same.
func Copy(real *appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: real.Namespace},
		Spec:       *real.Spec.DeepCopy(),
	}
	set.Spec.Selector.MatchLabels[installedBy] = name
	set.Spec.Template.Labels[installedBy] = name
	known := ""
	for i := range set.Spec.Template.Spec.Containers {
		c := &set.Spec.Template.Spec.Containers[i]
		if c.Name != container {
			continue
		}
		c.Image, c.Command = "docker.io/"+image, nil
		for _, arg := range c.Args {
			if value, ok := strings.CutPrefix(arg, "--driver-name="); ok {
				known = value
			}
		}
	}
	if known == "" {
		return nil, fmt.Errorf("DaemonSet %s has no container %s with --driver-name", real.Name, container)
	}
	for i := range set.Spec.Template.Spec.Containers {
		args := set.Spec.Template.Spec.Containers[i].Args
		for j := range args {
			args[j] = strings.ReplaceAll(args[j], known, driver)
		}
	}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.HostPath != nil {
			v.HostPath.Path = strings.ReplaceAll(v.HostPath.Path, known, driver)
		}
	}
	return set, nil
}

func (k *Ceiling) create(ctx context.Context) error {
	csiDriver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: new(false), PodInfoOnMount: new(true), StorageCapacity: new(true),
			FSGroupPolicy: new(storagev1.FileFSGroupPolicy),
		},
	}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver,
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	if _, err := k.client.StorageV1().CSIDrivers().Create(ctx, csiDriver, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the CSIDriver of the driver that does nothing: %w", err)
	}
	if _, err := k.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make its StorageClass: %w", err)
	}
	if _, err := k.client.AppsV1().DaemonSets(k.set.Namespace).Create(ctx, k.set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make its DaemonSet: %w", err)
	}
	return k.ready(ctx)
}

// ready waits until the driver runs on every node and its capacity is published.
func (k *Ceiling) ready(ctx context.Context) error {
	var status appsv1.DaemonSetStatus
	var published int32
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			set, err := k.client.AppsV1().DaemonSets(k.set.Namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			objects, err := k.client.StorageV1().CSIStorageCapacities(k.set.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			status, published = set.Status, 0
			for _, o := range objects.Items {
				if o.StorageClassName == name {
					published++
				}
			}
			n := status.DesiredNumberScheduled
			return n > 0 && status.NumberReady == n && published == n, nil
		})
	if err != nil {
		return fmt.Errorf("the driver that does nothing is ready on %d of %d nodes, with %d capacity objects: %w",
			status.NumberReady, status.DesiredNumberScheduled, published, err)
	}
	return nil
}

// Remove removes all of it, also after an interrupt.
func (k *Ceiling) Remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	foreground := metav1.DeletePropagationForeground
	var errs []error
	for _, err := range []error{
		k.client.AppsV1().DaemonSets(k.set.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}),
		k.client.StorageV1().StorageClasses().Delete(ctx, name, metav1.DeleteOptions{}),
		k.client.StorageV1().CSIDrivers().Delete(ctx, driver, metav1.DeleteOptions{}),
	} {
		if err = client.IgnoreNotFound(err); err != nil {
			errs = append(errs, fmt.Errorf("remove the driver that does nothing: %w", err))
		}
	}
	return errors.Join(append(errs, k.gone(ctx))...)
}

// gone waits until its pods have ended: until then the kubelet knows the driver.
func (k *Ceiling) gone(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			_, err := k.client.AppsV1().DaemonSets(k.set.Namespace).Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	if err != nil {
		return fmt.Errorf("wait until the driver that does nothing has ended: %w", err)
	}
	return nil
}

// System is it as the burst measures it. It shares the real driver's account.
func (k *Ceiling) System() burst.System {
	return burst.System{
		Name: burst.Ceiling, Class: name, Namespace: k.set.Namespace, Account: k.set.Spec.Template.Spec.ServiceAccountName,
		Processes: []string{"ceiling"},
	}
}
