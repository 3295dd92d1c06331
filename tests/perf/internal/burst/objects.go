package burst

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workload"
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
				ctx, workload.Claim(name, s.Class), metav1.CreateOptions{},
			)
			if err != nil {
				return fmt.Errorf("create a claim: %w", err)
			}
			pod := workload.Pod(name, o.Image, workload.Claimed(name))
			if _, err := o.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
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
