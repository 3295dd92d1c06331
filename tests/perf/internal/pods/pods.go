// Package pods measures single pods on one node of a cluster: how soon one runs, how soon a volume grows under one, and
// how soon all pods of a full node run again after a power cut.
package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workload"
)

// EmptyDir is the name of pods that have no volume of a provisioner.
const EmptyDir = "emptyDir"

// Options say how to measure.
type Options struct {
	Client kubernetes.Interface
	// Node is where all pods are.
	Node string
	// Systems have volumes to start pods with, ours first.
	Systems []burst.System
	// Image is what the pods run; it has to sleep when told "sleep".
	Image string
	// Rounds is how many pods are started with each volume, and how often a volume grows.
	Rounds int
	// Cut cuts the node's power, and returns when its kubelet works again.
	Cut func(context.Context) error
	// Quiet waits until the machine does nothing else, for what is about to be measured.
	Quiet func(ctx context.Context, what string) error
	// Log says what is being done.
	Log func(format string, args ...any)
}

// Outcome is what was measured.
type Outcome struct {
	// Names are the systems' and EmptyDir.
	Names []string
	// Started is how long pods took from their creation until they ran, round by round, by the name of the volume.
	Started map[string][]time.Duration
	// Grown is how long a claim took from its change until Kubernetes called it grown.
	Grown []time.Duration
	// Back is how long pods took from the power cut until they ran again, in rising order, by the name of the volume.
	Back map[string][]time.Duration
}

// ours is the name in Options.Systems of the driver whose volumes grow, and whose pods come back.
func (o Options) ours() string { return o.Systems[0].Name }

const (
	namespace = "perf-pods"
	single    = "single" // the pod that is alone
)

// waitTimeout ends what does not come to an end. It is an error, not a measurement.
const waitTimeout = 20 * time.Minute

type run struct {
	Options
	Outcome
}

// Run measures in a namespace of its own, which it removes.
func Run(ctx context.Context, o Options) (result Outcome, err error) {
	r := &run{o, Outcome{Started: map[string][]time.Duration{}, Back: map[string][]time.Duration{}}}
	if err := workload.MakeNamespace(ctx, o.Client, namespace); err != nil {
		return r.Outcome, err
	}
	defer func() { err = errors.Join(err, workload.RemoveNamespace(o.Client, namespace)) }()
	for _, s := range o.Systems {
		r.Names = append(r.Names, s.Name)
		if err := r.claim(ctx, s.Name, s.Class); err != nil {
			return r.Outcome, err
		}
	}
	r.Names = append(r.Names, EmptyDir)
	for _, do := range []func(context.Context) error{r.start, r.grow, r.comeBack} {
		if err := do(ctx); err != nil {
			return r.Outcome, errors.Join(err, workload.FirstTrouble(ctx, o.Client, namespace))
		}
	}
	return r.Outcome, nil
}

func (r *run) claim(ctx context.Context, name, class string) error {
	_, err := r.Client.CoreV1().PersistentVolumeClaims(namespace).Create(
		ctx, workload.Claim(name, class), metav1.CreateOptions{},
	)
	return err
}

// pod makes one on the node, with a claim, or with an empty directory where that is EmptyDir.
func (r *run) pod(ctx context.Context, name, claim string) error {
	volume := workload.Claimed(claim)
	if claim == EmptyDir {
		volume = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	pod := workload.Pod(name, r.Image, volume)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: r.Node}
	_, err := r.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// start starts pods one after the other, with each volume in turns. The first one of each makes its volume, and does
// not count.
func (r *run) start(ctx context.Context) error {
	if err := r.Quiet(ctx, "starts of single pods"); err != nil {
		return err
	}
	r.Log("start %d pods with each of %v", r.Rounds, r.Names)
	for i := range r.Rounds + 1 {
		for _, name := range stat.Rotated(r.Names, i) {
			began := time.Now()
			if err := r.pod(ctx, single, name); err != nil {
				return err
			}
			if err := r.until(ctx, "pods", single, runs); err != nil {
				return err
			}
			if took := time.Since(began); i > 0 {
				r.Started[name] = append(r.Started[name], took)
			}
			if err := r.remove(ctx, single); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause is between two growths: csi-resizer 2.3.0 can lose a change that comes while it still writes the last one into
// its cache, until something else about the claim changes.
const pause = time.Second

// grow lets the claim of a running pod grow, again and again.
func (r *run) grow(ctx context.Context) error {
	name := r.ours()
	if err := r.pod(ctx, single, name); err != nil {
		return err
	}
	if err := r.until(ctx, "pods", single, runs); err != nil {
		return err
	}
	r.Log("let the volume of a running pod grow %d times", r.Rounds)
	for i := range r.Rounds {
		size := resource.MustParse(fmt.Sprintf("%dMi", 2+i))
		patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size.String())
		began := time.Now()
		_, err := r.Client.CoreV1().PersistentVolumeClaims(namespace).Patch(
			ctx, name, types.MergePatchType, patch, metav1.PatchOptions{},
		)
		if err != nil {
			return fmt.Errorf("let the claim grow to %s: %w", size.String(), err)
		}
		grown := func(object any) bool {
			claim, ok := object.(*corev1.PersistentVolumeClaim)
			return ok && claim.Status.Capacity.Storage().Cmp(size) >= 0
		}
		if err := r.until(ctx, "persistentvolumeclaims", name, grown); err != nil {
			return err
		}
		r.Grown = append(r.Grown, time.Since(began))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return r.remove(ctx, single)
}

// comeBack fills the node with pods that have volumes, and then with such that have none, and cuts its power.
func (r *run) comeBack(ctx context.Context) error {
	for _, name := range []string{r.ours(), EmptyDir} {
		pods, err := r.fill(ctx, name)
		if err != nil {
			return err
		}
		if err := r.Quiet(ctx, fmt.Sprintf("the power cut of %d pods with %s", pods, name)); err != nil {
			return err
		}
		r.Log("cut the power of %s, which has %d pods with %s", r.Node, pods, name)
		again := r.watchAll(ctx, pods, restarted)
		began := time.Now()
		if err := r.Cut(ctx); err != nil {
			return err
		}
		times, err := again()
		if err != nil {
			return fmt.Errorf("wait until all pods are back: %w", err)
		}
		for _, at := range times {
			r.Back[name] = append(r.Back[name], at.Sub(began))
		}
		slices.Sort(r.Back[name])
		if err := r.empty(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill makes as many pods as the node still takes, each with a claim of its own or with none.
func (r *run) fill(ctx context.Context, name string) (pods int, err error) {
	if pods, err = r.room(ctx); err != nil {
		return 0, err
	}
	r.Log("make %d pods with %s", pods, name)
	all := r.watchAll(ctx, pods, runs)
	for i := range pods {
		pod := fmt.Sprintf("full-%d", i)
		claim := EmptyDir
		if name != EmptyDir {
			claim = pod
			if err := r.claim(ctx, claim, r.Systems[0].Class); err != nil {
				return 0, err
			}
		}
		if err := r.pod(ctx, pod, claim); err != nil {
			return 0, err
		}
	}
	_, err = all()
	return pods, err
}

// room is how many pods more the node takes.
func (r *run) room(ctx context.Context) (int, error) {
	node, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask how many pods the node takes: %w", err)
	}
	there, err := r.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + r.Node})
	if err != nil {
		return 0, fmt.Errorf("count the node's pods: %w", err)
	}
	return int(node.Status.Allocatable.Pods().Value()) - len(there.Items), nil
}

// runs reports whether an object is a pod that runs.
func runs(object any) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && pod.Status.Phase == corev1.PodRunning
}

// restarted reports whether an object is a pod that runs after its container was started again.
func restarted(object any) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok || len(pod.Status.ContainerStatuses) != 1 {
		return false
	}
	is := pod.Status.ContainerStatuses[0]
	return is.Ready && is.RestartCount > 0
}
