package burst

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// moments remembers when something first happened to each name.
type moments struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (m *moments) note(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[string]time.Time{}
	}
	if _, known := m.at[name]; !known {
		m.at[name] = time.Now()
	}
}

func (m *moments) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// since gives how long after start each happened, in rising order.
func (m *moments) since(start time.Time) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []time.Duration
	for _, at := range m.at {
		all = append(all, at.Sub(start))
	}
	slices.Sort(all)
	return all
}

// after gives how long each happened after the earlier moment of the same name, in rising order.
func (m *moments) after(earlier *moments) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	earlier.mu.Lock()
	defer earlier.mu.Unlock()
	var all []time.Duration
	for name, at := range m.at {
		if before, ok := earlier.at[name]; ok {
			all = append(all, at.Sub(before))
		}
	}
	slices.Sort(all)
	return all
}

// watch sees claims, pods and volumes change, as they reach a client of the API server: finer than the whole seconds
// of the objects' own time stamps. A claim and its pod have one name.
type watch struct {
	created, bound, running, gone moments

	claims, pods cache.SharedIndexInformer
	changed      chan struct{}
	cancel       context.CancelFunc
}

// startWatch returns when everything that is there already has been seen.
func startWatch(ctx context.Context, client kubernetes.Interface, namespace string) (*watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{changed: make(chan struct{}, 1), cancel: cancel}
	inside := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	everywhere := informers.NewSharedInformerFactory(client, 0)
	w.claims, w.pods = inside.Core().V1().PersistentVolumeClaims().Informer(), inside.Core().V1().Pods().Informer()
	volumes := everywhere.Core().V1().PersistentVolumes().Informer()
	for informer, see := range map[cache.SharedIndexInformer]func(object any, deleted bool){
		w.claims: w.seeClaim, w.pods: w.seePod,
		volumes: func(object any, deleted bool) { w.seeVolume(object, deleted, namespace) },
	} {
		if _, err := informer.AddEventHandler(w.handler(see)); err != nil {
			cancel()
			return nil, fmt.Errorf("watch the cluster: %w", err)
		}
	}
	inside.Start(ctx.Done())
	everywhere.Start(ctx.Done())
	inside.WaitForCacheSync(ctx.Done())
	everywhere.WaitForCacheSync(ctx.Done())
	return w, ctx.Err()
}

func (w *watch) stop() { w.cancel() }

func (w *watch) handler(see func(object any, deleted bool)) cache.ResourceEventHandlerFuncs {
	notify := func(object any, deleted bool) {
		see(object, deleted)
		select {
		case w.changed <- struct{}{}:
		default: // somebody has yet to look at the last change, and will see this one too
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { notify(object, false) },
		UpdateFunc: func(_, object any) { notify(object, false) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			notify(object, true)
		},
	}
}

func (w *watch) seeClaim(object any, deleted bool) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && !deleted && claim.Status.Phase == corev1.ClaimBound {
		w.bound.note(claim.Name)
	}
}

func (w *watch) seePod(object any, deleted bool) {
	if pod, ok := object.(*corev1.Pod); ok && !deleted && pod.Status.Phase == corev1.PodRunning {
		w.running.note(pod.Name)
	}
}

func (w *watch) seeVolume(object any, deleted bool, namespace string) {
	pv, ok := object.(*corev1.PersistentVolume)
	if ok && deleted && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Namespace == namespace {
		w.gone.note(pv.Name)
	}
}

// empty reports whether no claim and no pod is left.
func (w *watch) empty() bool {
	return len(w.claims.GetStore().List()) == 0 && len(w.pods.GetStore().List()) == 0
}

// await waits until something is so, and says where it stands when it gives up.
func (w *watch) await(ctx context.Context, what string, so func() bool) error {
	for !so() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited until %s: %d bound, %d running, %d volumes gone: %w",
				what, w.bound.len(), w.running.len(), w.gone.len(), context.Cause(ctx))
		case <-w.changed:
		}
	}
	return nil
}
