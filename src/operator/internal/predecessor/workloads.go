package predecessor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// workloads is what kubevirt's operator ran.
type workloads struct {
	daemonSets []appsv1.DaemonSet
	jobs       []batchv1.Job
	pods       []corev1.Pod
	mounters   []appsv1.Deployment
	nodes      []corev1.Node
}

func (p *Predecessor) workloads(ctx context.Context) (workloads, error) {
	var found workloads
	for _, name := range daemonSets() {
		var list appsv1.DaemonSetList
		if err := p.Live.List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
			return found, fmt.Errorf("find kubevirt's driver: list DaemonSets: %w", advise(err))
		}
		found.daemonSets = append(found.daemonSets, list.Items...)
	}
	found.daemonSets = slices.DeleteFunc(found.daemonSets, func(set appsv1.DaemonSet) bool { return !inherited(&set) })
	var jobs batchv1.JobList
	if err := p.Live.List(ctx, &jobs, client.InNamespace(p.Namespace),
		client.MatchingLabels{managedByLabel: operatorName}); err != nil {
		return found, fmt.Errorf("find kubevirt's clean-up: list Jobs: %w", advise(err))
	}
	found.jobs = slices.DeleteFunc(jobs.Items,
		func(job batchv1.Job) bool { return !inherited(&job) || !strings.HasPrefix(job.Name, cleanupPrefix) })
	var pods corev1.PodList
	if err := p.Live.List(ctx, &pods, client.MatchingLabels{appLabel: provisioner}); err != nil {
		return found, fmt.Errorf("find kubevirt's driver: list pods: %w", advise(err))
	}
	found.pods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !drives(&pod) })
	var err error
	if found.mounters, err = p.findMounters(ctx); err != nil {
		return found, err
	}
	found.nodes, err = p.listNodes(ctx)
	return found, err
}

func daemonSets() []string { return []string{csiName, provisioner} }

// inherited reports whether an object is kubevirt's operator's, and not one that this operator has applied since. The
// labels alone do not tell: both have used them.
func inherited(object client.Object) bool {
	labels := object.GetLabels()
	return labels[names.OwnedBy] == "" &&
		(labels[managedByLabel] == operatorName || labels[appLabel] == provisioner)
}

// drives reports whether a pod with kubevirt's label is one of its driver, or unmounts a pool. Others use that label
// too (microk8s's provisioner), and what mounts a pool's claim may run beside ours.
func drives(pod *corev1.Pod) bool {
	if !inherited(pod) || pod.Labels[poolLabel] != "" {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return pod.Labels[managedByLabel] == operatorName ||
		owner != nil && owner.Kind == "DaemonSet" && slices.Contains(daemonSets(), owner.Name)
}

// elsewhere says why volumes of a pool could not be served from this operator's namespace, "" if they can.
func (w workloads) elsewhere(namespace string) string {
	i := slices.IndexFunc(w.mounters, func(d appsv1.Deployment) bool { return d.Namespace != namespace })
	if i < 0 {
		return ""
	}
	theirs := w.mounters[i].Namespace
	return fmt.Sprintf("not served yet: kubevirt's operator ran in namespace %s, where its pools have their claims "+
		"(Deployment %s), and a claim cannot be mounted from namespace %s: uninstall this operator's release (`helm "+
		"uninstall --no-hooks`: nothing was deployed yet) and install it in namespace %s. If nobody needs those "+
		"pools' data, run `kubectl delete deployment --namespace=%s --selector=%s=%s,%s`",
		theirs, w.mounters[i].Name, namespace, theirs, theirs, appLabel, provisioner, poolLabel)
}

// deletable are the workloads that were not deleted yet.
func (w workloads) deletable() []client.Object {
	var all []client.Object
	for i := range w.daemonSets {
		all = append(all, &w.daemonSets[i])
	}
	for i := range w.jobs {
		all = append(all, &w.jobs[i])
	}
	return slices.DeleteFunc(all, func(object client.Object) bool { return object.GetDeletionTimestamp() != nil })
}

// message says what is waited for, "" if nothing is. A DaemonSet that is being deleted is no reason to wait when its
// pods are gone, or on dead nodes: it makes no new ones.
func (w workloads) message(namespace string, now time.Time) string {
	left := leftPods(w.pods, w.nodes, now)
	switch {
	case left == "" && len(w.deletable()) == 0:
		return ""
	case left == "":
		left = "they are being deleted"
	}
	message := "not served yet: what kubevirt's operator deployed still runs, and the driver starts when it has " +
		"ended: " + left
	for i := range w.pods {
		if elsewhere := w.pods[i].Namespace; elsewhere != namespace && unmounts(&w.pods[i]) {
			return message + fmt.Sprintf("; to end a Job of kubevirt's, run `kubectl delete job --namespace=%s "+
				"--selector=%s=%s`", elsewhere, managedByLabel, operatorName)
		}
	}
	return message
}

// unmounts reports whether a pod is that of a Job that unmounts a pool, and has not ended.
func unmounts(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && pod.Status.Phase != corev1.PodSucceeded
}

// leftPods says which pods are waited for, by the rule of the deletion gate: those on nodes that are gone or not ready
// are given up in time. "" if there are none. A node that was given up before they were deleted keeps nobody waiting:
// meanwhile no other node would have a driver.
func leftPods(pods []corev1.Pod, nodes []corev1.Node, now time.Time) string {
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return abandoned(&pod, nodes, now) })
	since := time.Time{}
	for i := range pods {
		stopped := now
		if pods[i].DeletionTimestamp != nil {
			stopped = pods[i].DeletionTimestamp.Time
		}
		if stopped.After(since) {
			since = stopped
		}
	}
	for _, gate := range (gates.Deletion{Now: now, Since: since, Pods: pods, Nodes: nodes}).Chain() {
		if gate.Name == gates.PodsEnded && !gate.Open {
			return gate.Message
		}
	}
	return ""
}

// abandoned reports whether a pod is being deleted on a node that has not been ready for longer than anybody waits.
func abandoned(pod *corev1.Pod, nodes []corev1.Node, now time.Time) bool {
	i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return node.Name == pod.Spec.NodeName })
	if i < 0 || pod.DeletionTimestamp == nil {
		return false
	}
	ready, since := gates.NodeReady(&nodes[i])
	return !ready && now.Sub(since) >= gates.DeadNodeTimeout
}

// remove deletes exactly the objects that were seen, of workloads their pods first. All are tried.
func (p *Predecessor) remove(ctx context.Context, objects ...client.Object) error {
	var problems []error
	for _, object := range objects {
		uid := object.GetUID()
		options := []client.DeleteOption{client.Preconditions{UID: &uid}}
		switch object.(type) {
		case *appsv1.DaemonSet, *appsv1.Deployment, *batchv1.Job:
			options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
		}
		if err := p.Writer.Delete(ctx, object, options...); client.IgnoreNotFound(err) != nil {
			problems = append(problems,
				fmt.Errorf("delete kubevirt's %s %s: %w", kindOf(object), client.ObjectKeyFromObject(object),
					advise(err)))
		}
	}
	return errors.Join(problems...)
}

// kindOf is an object's kind; those that were listed with their type do not have it.
func kindOf(object client.Object) string {
	return cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1."))
}
