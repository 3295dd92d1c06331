// Package burst measures how a cluster takes many claims at once, each with a pod of its own: when they are bound,
// when the pods run, when the volumes are gone after deletion, and what the provisioner under test costs meanwhile.
package burst

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// System is a provisioner under test.
type System struct {
	// Name is what reports call it; with the prefix "perf-" also a namespace.
	Name string
	// Class is its StorageClass, with WaitForFirstConsumer.
	Class string
	// Accounts are the ServiceAccounts in Namespace whose requests to the API server are counted.
	Namespace string
	Accounts  []string
	// Processes are the names of its processes on the nodes, 15 characters at most (comm, proc_pid_comm(5)).
	Processes []string
	// Central is the one of them that runs on one node only, "" if none does.
	Central string
}

// Options say how to measure.
type Options struct {
	Client kubernetes.Interface
	// Claims is how many claims there are, each with a pod.
	Claims int
	// Image is what the pods run; it has to sleep when told "sleep".
	Image string
	// Memory reads the processes' memory; nil where it is not wanted.
	Memory func(context.Context, []string) (Memory, error)
	// Log says what is being done.
	Log func(format string, args ...any)
}

// Outcome is what was measured. All times but those of single claims count from the first request.
type Outcome struct {
	System System
	// Bound and Running are when each claim was bound and each pod ran, Gone when each volume was gone, in rising order;
	// Gone counts from the request for deletion.
	Bound, Running, Gone []time.Duration
	// ToBound and ToRunning are how long each claim waited from its own creation.
	ToBound, ToRunning []time.Duration
	// Requests counts those of the system's accounts from the first claim to the last volume gone, by kind of object.
	Requests Requests
	// IdlePerMinute is how many requests the accounts send while nothing happens.
	IdlePerMinute float64
	// Memory is what the system's processes hold on each node while all pods run.
	Memory Memory
}

// patience ends a burst that does not come to an end. It is an error, not a measurement.
const patience = 20 * time.Minute

// idle is for how long the requests of a system without work are counted.
const idle = 30 * time.Second

// Run measures one system. Whatever it made is removed again.
func Run(ctx context.Context, o Options, s System) (_ Outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(
		ctx, patience, fmt.Errorf("the burst of %s did not end in %s", s.Name, patience),
	)
	defer cancel()
	counter, err := newCounter(ctx, o.Client, s)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, counter.close()) }()
	namespace := "perf-" + s.Name
	if err := makeNamespace(ctx, o.Client, namespace); err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, removeNamespace(o.Client, namespace)) }()

	o.Log("%s: warm up, so that every node has the images", s.Name)
	warm := o
	warm.Claims, warm.Memory = 6, nil
	if _, err := measure(ctx, warm, s, namespace); err != nil {
		return Outcome{}, fmt.Errorf("%s: warm up: %w", s.Name, err)
	}
	perMinute, err := counter.idle(ctx, idle, o.Log)
	if err != nil {
		return Outcome{}, err
	}
	before, err := counter.read(ctx)
	if err != nil {
		return Outcome{}, err
	}
	out, err := measure(ctx, o, s, namespace)
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	after, err := counter.read(ctx)
	out.Requests, out.IdlePerMinute = after.since(before), perMinute
	return out, err
}

// measure makes the claims and pods, waits, deletes them, and waits again.
func measure(ctx context.Context, o Options, s System, namespace string) (Outcome, error) {
	out := Outcome{System: s}
	w, err := startWatch(ctx, o.Client, namespace)
	if err != nil {
		return out, err
	}
	defer w.stop()
	o.Log("%s: %d claims, each with a pod", s.Name, o.Claims)
	start := time.Now()
	if err := createAll(ctx, o, s, namespace, w); err != nil {
		return out, err
	}
	if err := w.await(ctx, "all pods run", func() bool { return w.running.len() >= o.Claims }); err != nil {
		return out, errors.Join(err, firstTrouble(ctx, o.Client, namespace))
	}
	out.Bound, out.Running = w.bound.since(start), w.running.since(start)
	out.ToBound, out.ToRunning = w.bound.after(&w.created), w.running.after(&w.created)
	if o.Memory != nil {
		if out.Memory, err = o.Memory(ctx, s.Processes); err != nil {
			return out, err
		}
	}
	o.Log("%s: all pods run after %s; delete everything", s.Name, time.Since(start).Round(100*time.Millisecond))
	start = time.Now()
	if err := deleteAll(ctx, o.Client, namespace); err != nil {
		return out, err
	}
	if err := w.await(ctx, "all volumes are gone", func() bool { return w.gone.len() >= o.Claims }); err != nil {
		return out, err
	}
	out.Gone = w.gone.since(start)
	o.Log("%s: all volumes gone after %s", s.Name, time.Since(start).Round(100*time.Millisecond))
	return out, w.await(ctx, "all claims and pods are gone", w.empty)
}

func makeNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
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

// removeNamespace removes what is left, also after an interrupt, and waits: the name may be wanted again.
func removeNamespace(client kubernetes.Interface, name string) error {
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

// firstTrouble is what the cluster says about a pod that does not run, for an error.
func firstTrouble(ctx context.Context, client kubernetes.Interface, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return err
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	for _, e := range events.Items {
		return fmt.Errorf("the last warning is about %s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason,
			e.Message)
	}
	return errors.New("no warning events")
}
