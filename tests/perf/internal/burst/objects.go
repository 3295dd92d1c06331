package burst

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// writers is how many requests to create something are under way at once: more than one API
// server on two cores can take.
const writers = 16

// createAll makes every claim and its pod, as fast as the API server takes them.
func createAll(ctx context.Context, o Options, s System, namespace string, w *watch) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range o.Claims {
		name := "perf-" + strconv.Itoa(i)
		group.Go(func() error {
			w.created.note(name)
			_, err := o.Client.CoreV1().PersistentVolumeClaims(namespace).Create(
				ctx, claim(name, s.Class), metav1.CreateOptions{},
			)
			if err != nil {
				return fmt.Errorf("create a claim: %w", err)
			}
			if _, err := o.Client.CoreV1().Pods(namespace).Create(ctx, pod(name, o.Image),
				metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create a pod: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// deleteAll asks for the deletion of all pods and claims of a namespace.
func deleteAll(ctx context.Context, client kubernetes.Interface, namespace string) error {
	all := metav1.ListOptions{}
	if err := client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return fmt.Errorf("delete the pods: %w", err)
	}
	if err := client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(
		ctx, metav1.DeleteOptions{}, all,
	); err != nil {
		return fmt.Errorf("delete the claims: %w", err)
	}
	return nil
}

func claim(name, class string) *corev1.PersistentVolumeClaim {
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

func pod(name, image string) *corev1.Pod {
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
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}},
		},
	}
}
