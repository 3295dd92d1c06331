package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/util"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// workers is how many claims are looked at together.
	workers = 2
	// firstRetry and lastRetry bound the pause after a request that failed.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Config is what a Watcher is made of; all fields are required, only NoticeDelay may be 0.
type Config struct {
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Node is the name of this node.
	Node string
	// NoticeDelay is how long a claim may stay without a volume before the instances whose business it is not look
	// whether it can get one. They look at different moments of the interval after it.
	NoticeDelay time.Duration
	Log         *slog.Logger
}

// Watcher does about claims what is left to do before they can be provisioned: it selects its node for a claim whose
// annotation names it, and says on a claim why nothing happens.
type Watcher struct {
	Config
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns a watcher on the claims and classes of the informers, which the caller starts afterwards.
func New(c Config) (*Watcher, error) {
	if c.Client == nil || c.Informers == nil || c.Node == "" || c.Log == nil {
		return nil, errors.New("claim watcher: a field of its Config is missing")
	}
	c.Informers.Core().V1().PersistentVolumeClaims().Informer()
	c.Informers.Storage().V1().StorageClasses().Informer()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry)
	return &Watcher{Config: c, queue: workqueue.NewTypedRateLimitingQueue(limiter)}, nil
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.queue.ShutDown()
	claims := w.Informers.Core().V1().PersistentVolumeClaims().Informer()
	classes := w.Informers.Storage().V1().StorageClasses().Informer()
	if !cache.WaitForCacheSync(ctx.Done(), claims.HasSynced, classes.HasSynced) {
		return nil
	}
	// A claim can be older than its class. The classes that are here already are found when the
	// claims are seen, after this.
	_, classesErr := classes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(object any,
		known bool,
	) {
		if !known {
			w.enqueueClass(object)
		}
	}})
	_, claimsErr := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.enqueueClaim,
		UpdateFunc: func(_, now any) { w.enqueueClaim(now) },
	})
	if err := errors.Join(claimsErr, classesErr); err != nil {
		return fmt.Errorf("watch claims: %w", err)
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for w.workOnNext(ctx) {
				continue
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	running.Wait()
	return nil
}

// enqueueClaim queues a claim with which there is something to do.
func (w *Watcher) enqueueClaim(object any) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	switch w.decide(claim) {
	case Select, Override:
		w.queue.Add(cache.MetaObjectToName(claim))
	case Verify, Explain:
		// Usually the right instance has done its work by then, and there is nothing to ask or to say.
		// (Jitter of 0 is 0.)
		w.queue.AddAfter(cache.MetaObjectToName(claim), wait.Jitter(w.NoticeDelay, 1))
	case Ignore, Provision:
	}
}

func (w *Watcher) enqueueClass(object any) {
	class, ok := object.(*storagev1.StorageClass)
	if !ok {
		return
	}
	claims, err := w.Informers.Core().V1().PersistentVolumeClaims().Lister().List(labels.Everything())
	if err != nil {
		return // a list of what is in memory
	}
	for _, claim := range claims {
		if util.GetPersistentVolumeClaimClass(claim) == class.Name {
			w.enqueueClaim(claim)
		}
	}
}

// decide is Decide with the claim's class, if there is one.
func (w *Watcher) decide(claim *corev1.PersistentVolumeClaim) Action {
	class, err := w.Informers.Storage().V1().StorageClasses().Lister().Get(util.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return Ignore
	}
	return Decide(claim, class, w.Node)
}

// workOnNext works on one claim; more is false when the queue has ended.
func (w *Watcher) workOnNext(ctx context.Context) (more bool) {
	name, ended := w.queue.Get()
	if ended {
		return false
	}
	defer w.queue.Done(name)
	if err := w.actOnClaim(ctx, name); err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "cannot do what a claim needs; it is tried again",
			logging.KeyClaim, name.String(), logging.KeyError, err)
		w.queue.AddRateLimited(name)
		return true
	}
	w.queue.Forget(name)
	return true
}

// actOnClaim does what is to do about a claim now.
func (w *Watcher) actOnClaim(ctx context.Context, name cache.ObjectName) error {
	claim, err := w.Informers.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(name.Namespace).Get(
		name.Name,
	)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch w.decide(claim) {
	case Select:
		return w.selectNode(ctx, claim)
	case Override:
		return w.notify(ctx, claim, contradiction(claim))
	case Verify:
		return w.verify(ctx, claim)
	case Explain:
		return w.notify(ctx, claim, nodeNeeded(claim))
	case Ignore, Provision:
	}
	return nil
}

// selectNode writes this node into the claim, unless the claim is another one by now than the one that was decided
// upon: the scheduler may be selecting as well.
func (w *Watcher) selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]string{SelectedNode: w.Node},
	}})
	if err != nil {
		return err
	}
	_, err = w.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType,
		patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("select node %s for the claim: %w", w.Node, err)
	}
	w.Log.InfoContext(ctx, "selected this node for a claim whose annotation names it",
		logging.KeyClaim, claim.Namespace+"/"+claim.Name, logging.KeyNode, w.Node)
	return nil
}

// verify says on the claim when there is no node of the name in its annotation.
func (w *Watcher) verify(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := w.Client.CoreV1().Nodes().Get(ctx, wanted(claim), metav1.GetOptions{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for node %s: %w", wanted(claim), err)
	}
	nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxNodes + 1})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	return w.notify(ctx, claim, nodeUnknown(claim, nodes.Items))
}
