// Package workload has the claims and pods that are measured, and the namespaces they are in.
package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// Claim asks a class for 1 MiB.
func Claim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			},
		},
	}
}

// Claimed is the volume of a claim.
func Claimed(claim string) corev1.VolumeSource {
	return corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}
}

// Pod has one container, which sleeps when told "sleep", and a volume.
func Pod(name, image string, data corev1.VolumeSource) *corev1.Pod {
	seconds, no := int64(2), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &seconds,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			Containers: []corev1.Container{{
				Name: "sleep", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"sleep"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: data}},
		},
	}
}

// MakeNamespace makes one that is not there, and waits until it takes pods.
func MakeNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s (left over? remove it): %w", name, err)
	}
	// Pods are refused until the controller manager has made this.
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, ctrlclient.IgnoreNotFound(err)
	})
}

// RemoveNamespace removes what is left, also after an interrupt, and waits: the name may be wanted again.
func RemoveNamespace(client kubernetes.Interface, name string) error {
	gone := func(ctx context.Context) (bool, error) {
		err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return apierrors.IsNotFound(err), ctrlclient.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(
		context.Background(), 500*time.Millisecond, 3*time.Minute, true, gone,
	); err != nil {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

// FirstTrouble is what the cluster says about a pod that does not run, for an error.
func FirstTrouble(ctx context.Context, client kubernetes.Interface, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return err
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	for _, e := range events.Items {
		return fmt.Errorf("the last warning is about %s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name,
			e.Reason, e.Message)
	}
	return errors.New("no warning events")
}
