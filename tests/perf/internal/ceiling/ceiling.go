// Package ceiling puts a driver that does nothing into a cluster, in a copy of the real driver's DaemonSet: what the burst reaches
// with it is the most that Kubernetes lets any driver reach there.
package ceiling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
)

const (
	name   = "perf-ceiling" // of everything it makes
	driver = "ceiling.perf.hostpath-provisioner"
	image  = "perf/ceiling:latest"
	// container is the real driver's in its DaemonSet.
	container = "driver"
	// installedBy is the label by which the two DaemonSets tell their pods apart.
	installedBy = "app.kubernetes.io/instance"
)

// Ceiling is an installed driver that does nothing.
type Ceiling struct {
	client kubernetes.Interface
	set    *appsv1.DaemonSet
}

// Install builds the driver from the tests module in folder tests, and installs it beside the real one, whose DaemonSet it copies.
func Install(ctx context.Context, c *kindcluster.Cluster, client kubernetes.Interface, real *appsv1.DaemonSet, tests string) (*Ceiling, error) {
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
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./perf/ceiling")
	cmd.Dir = tests
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./perf/ceiling: %w\n%s", err, out)
	}
	_, err = c.PushBinary(ctx, binary, "/ceiling", image)
	return err
}

// Copy is the real driver's DaemonSet with the driver that does nothing in the driver's place: another name for the driver and
// its socket, everything else the same.
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
	no, late, reclaim := false, storagev1.VolumeBindingWaitForFirstConsumer, storagev1.FSGroupPolicy("File")
	capacity := true
	csiDriver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: &capacity, StorageCapacity: &capacity, FSGroupPolicy: &reclaim},
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &late}
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
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		set, err := k.client.AppsV1().DaemonSets(k.set.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("wait for the driver that does nothing: %w", err)
		}
		objects, err := k.client.StorageV1().CSIStorageCapacities(k.set.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("wait for its capacity: %w", err)
		}
		var published int32
		for _, o := range objects.Items {
			if o.StorageClassName == name {
				published++
			}
		}
		if n := set.Status.DesiredNumberScheduled; n > 0 && set.Status.NumberReady == n && published == n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the driver that does nothing is ready on %d of %d nodes, with %d capacity objects: %w",
				set.Status.NumberReady, set.Status.DesiredNumberScheduled, published, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Remove removes all of it, also after an interrupt.
func (k *Ceiling) Remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	wait := metav1.DeletePropagationForeground
	var errs []error
	for _, err := range []error{
		k.client.AppsV1().DaemonSets(k.set.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &wait}),
		k.client.StorageV1().StorageClasses().Delete(ctx, name, metav1.DeleteOptions{}),
		k.client.StorageV1().CSIDrivers().Delete(ctx, driver, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the driver that does nothing: %w", err))
		}
	}
	return errors.Join(append(errs, k.gone(ctx))...)
}

// gone waits until its pods have ended: until then the kubelet knows the driver.
func (k *Ceiling) gone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		_, err := k.client.AppsV1().DaemonSets(k.set.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait until the driver that does nothing has ended: %w", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// System is it as the burst measures it. It shares the real driver's account.
func (k *Ceiling) System() burst.System {
	return burst.System{
		Name: burst.Ceiling, Class: name, Namespace: k.set.Namespace, Account: k.set.Spec.Template.Spec.ServiceAccountName,
		Processes: []string{"ceiling"},
	}
}
