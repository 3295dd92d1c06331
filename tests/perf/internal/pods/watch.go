package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// watched is the type of what is waited for, by its resource.
func watched(kind string) runtime.Object {
	if kind == "pods" {
		return &corev1.Pod{}
	}
	return &corev1.PersistentVolumeClaim{}
}

// until waits for a state of an object.
func (r *run) until(ctx context.Context, kind, name string, is func(object any) bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	_, err := watchtools.UntilWithSync(ctx, r.list(kind, name), watched(kind), nil,
		func(e watch.Event) (bool, error) { return is(e.Object), nil })
	if err != nil {
		return fmt.Errorf("wait for %s %s: %w", kind, name, err)
	}
	return nil
}

// list watches the objects of a resource, or the one of a name.
func (r *run) list(kind, name string) *cache.ListWatch {
	which := fields.Everything()
	if name != "" {
		which = fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	}
	return cache.NewListWatchFromClient(r.Client.CoreV1().RESTClient(), kind, namespace, which)
}

// watchAll begins to look at all pods. What it returns waits until so many have been in a state, and says since when by
// their names.
func (r *run) watchAll(
	ctx context.Context, pods int, is func(object any) bool,
) (await func() (map[string]time.Time, error)) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	at := map[string]time.Time{}
	ended := make(chan error, 1)
	go func() {
		_, err := watchtools.UntilWithSync(ctx, r.list("pods", ""), watched("pods"), nil,
			func(e watch.Event) (bool, error) {
				pod, ok := e.Object.(*corev1.Pod)
				if !ok {
					return false, nil
				}
				if _, known := at[pod.Name]; !known && is(pod) {
					at[pod.Name] = time.Now()
				}
				return len(at) == pods, nil
			})
		ended <- err
	}()
	return func() (map[string]time.Time, error) {
		defer cancel()
		if err := <-ended; err != nil {
			return nil, fmt.Errorf("%d of %d pods: %w", len(at), pods, err)
		}
		return at, nil
	}
}

// remove deletes a pod, and waits until it is gone.
func (r *run) remove(ctx context.Context, name string) error {
	if err := r.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return r.gone(ctx, name)
}

// empty deletes all pods and claims, and waits until the pods are gone.
func (r *run) empty(ctx context.Context) error {
	all := metav1.ListOptions{}
	if err := r.Client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return fmt.Errorf("delete the pods: %w", err)
	}
	if err := r.Client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(
		ctx, metav1.DeleteOptions{}, all,
	); err != nil {
		return fmt.Errorf("delete the claims: %w", err)
	}
	return r.gone(ctx, "")
}

// gone waits until a pod is not there any more, or none is where it has no name.
func (r *run) gone(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	left := map[string]bool{}
	_, err := watchtools.UntilWithSync(ctx, r.list("pods", name), watched("pods"),
		func(store cache.Store) (bool, error) {
			for _, key := range store.ListKeys() {
				left[key] = true
			}
			return len(left) == 0, nil
		},
		func(e watch.Event) (bool, error) {
			if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Deleted {
				delete(left, namespace+"/"+pod.Name)
			}
			return len(left) == 0, nil
		})
	if err != nil {
		return fmt.Errorf("wait until pods are gone: %w", err)
	}
	return nil
}
