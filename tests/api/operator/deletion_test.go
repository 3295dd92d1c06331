package operator

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// deadNodeTimeout is what the documentation promises.
const deadNodeTimeout = 10 * time.Minute

func deletion(t *testing.T, w *world) {
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
	} {
		t.Run("volumes hold it, "+string(policy), func(t *testing.T) { heldByVolumes(t, w, policy) })
	}
	t.Run("the webhook is away", func(t *testing.T) { unreachable(t, w) })
	t.Run("a dead node holds it for ten minutes", func(t *testing.T) { heldByDeadNode(t, w) })
	t.Run("annotation", func(t *testing.T) { forced(t, w) })
}

// heldByVolumes: the gate behind the webhook, for a deletion that came past it. The garbage collector, which `kubectl
// delete --cascade=foreground` sets upon the objects first, must not get past the gate either.
func heldByVolumes(t *testing.T, w *world, policy metav1.DeletionPropagation) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	volume := w.volume(t, "local")
	w.withoutWebhook(t, func() { w.Delete(t, named(), client.PropagationPolicy(policy)) })
	w.deleting(t, "VolumesLeft", "1 volume left: default/data (pvc-of-local); delete the claims, or set the annotation")
	w.events(t, "DeletionBlocked")
	// What serves the volumes is kept, and kept in order.
	uid := harness.Until(t, w.Server, "the DaemonSet is there", daemonSet(driverName),
		func(set *appsv1.DaemonSet) error {
			if set.DeletionTimestamp != nil { // the garbage collector may be at it, and then it comes back
				return fmt.Errorf("it is being deleted")
			}
			return nil
		}).UID
	if err := w.Client.Delete(t.Context(), daemonSet(driverName)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the DaemonSet comes back while volumes are left", func(ctx context.Context) error {
		set := daemonSet(driverName)
		if err := w.Client.Get(ctx, keyOf(set), set); err != nil {
			return err
		}
		if set.UID == uid {
			return fmt.Errorf("it is still the old one")
		}
		return nil
	})
	w.goesOnceReleased(t, volume)
}

// goesOnceReleased: what is being deleted can still be changed, and goes with all it owns once its volume is released.
func (w *world) goesOnceReleased(t *testing.T, volume *corev1.PersistentVolume) {
	t.Helper()
	harness.Change(t, w.Server, named(),
		func(r *v1beta1.HostPathProvisioner) { r.Labels = map[string]string{"a": "b"} })
	w.release(t, volume, corev1.PersistentVolumeReclaimRetain)
	w.Gone(t, named())
	w.nothingLeft(t.Context(), t)
	w.Delete(t, volume)
	w.Gone(t, volume)
}

func heldByDeadNode(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.nodes.Die(t, "node-2")
	defer w.nodes.Return(t, "node-2")
	w.Delete(t, named())
	resource := w.deleting(t, "WaitingForNodes", "pods are left on nodes that are gone or not ready", "on node-2")
	until := resource.DeletionTimestamp.Add(deadNodeTimeout).UTC().Format(time.RFC3339)
	message := meta.FindStatusCondition(resource.Status.Conditions, v1beta1.Deleting).Message
	if !strings.HasSuffix(message, "waits for the nodes until "+until) {
		t.Errorf("the condition does not say when the wait is over (%s): %s", until, message)
	}
	// Until the pods have ended they keep their rights.
	harness.Get(t, w.Server, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: driverName},
	})
	w.nodes.Return(t, "node-2")
	w.Gone(t, named())
	w.nothingLeft(t.Context(), t)
}

func forced(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	volume := w.volume(t, "local")
	w.uninstall(t, 1, "The operator is still needed: the HostPathProvisioner hostpath-provisioner exists, and nothing "+
		"else can remove what it runs.\n"+
		"  pool local at /var/hpvolumes: 1 volume\n"+
		"Volumes: default/data (pvc-of-local).\n"+
		"Delete the claims of its volumes, then it, then uninstall again:\n"+
		"  kubectl delete hostpathprovisioners.hostpathprovisioner.kubevirt.io hostpath-provisioner\n"+
		"Or leave the data on the nodes (no pod can use it then): kubectl annotate "+
		"hostpathprovisioners.hostpathprovisioner.kubevirt.io hostpath-provisioner "+
		"hostpathprovisioner.kubevirt.io/delete-with-volumes=true\n"+
		"To keep the release instead, bring it back to the last revision of `helm history RELEASE`: "+
		"helm rollback RELEASE REVISION\n")
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Annotations = map[string]string{names.ForceDelete: "true"}
		r.Finalizers = append(r.Finalizers, names.KubevirtFinalizer) // nobody else would ever remove it
	})
	w.Delete(t, named())
	w.Gone(t, named())
	owned, err := w.owned(t.Context())
	for name, object := range owned {
		if slices.Contains([]string{"DaemonSet", "Deployment"}, object.GetKind()) {
			t.Errorf("the resource is gone, and %s is there: Helm could not make one", name)
		}
	}
	if err != nil {
		t.Error(err)
	}
	w.nothingLeft(t.Context(), t)
	harness.Get(t, w.Server, volume)
	w.events(t, "DeletionLeftBehind")
	w.release(t, volume, corev1.PersistentVolumeReclaimRetain)
	w.Delete(t, volume)
}

func nothingToUninstall(t *testing.T, w *world) { w.uninstall(t, 0, "") }

// uninstall runs the hook of `helm uninstall`, with the rights that it has there.
func (w *world) uninstall(t *testing.T, code int, output string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), w.operator.Binary, "check-uninstall",
		"--driver-name="+names.Driver, "--namespace="+harness.Namespace, "--kubeconfig="+w.operator.Kubeconfig)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if command.ProcessState.ExitCode() != code || stdout.String() != output {
		t.Errorf("check-uninstall ended with %d (%v), want %d; it said\n%s%s\nwant\n%s",
			command.ProcessState.ExitCode(), err, code, &stdout, &stderr, output)
	}
}

// deleting waits for the condition Deleting.
func (w *world) deleting(t *testing.T, reason string, words ...string) *v1beta1.HostPathProvisioner {
	t.Helper()
	w.condition(t, v1beta1.Deleting, metav1.ConditionTrue, words...)
	return harness.Until(t, w.Server, "reason "+reason, named(), func(r *v1beta1.HostPathProvisioner) error {
		if condition := meta.FindStatusCondition(r.Status.Conditions, v1beta1.Deleting); condition.Reason != reason {
			return fmt.Errorf("it is %s: %s", condition.Reason, condition.Message)
		}
		return nil
	})
}

func (w *world) nothingLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	harness.EventuallyWith(ctx, t, "nothing is left", func(ctx context.Context) error {
		owned, err := w.owned(ctx)
		if err != nil {
			return err
		}
		pods, err := w.Pods(ctx, driverPods)
		if err != nil {
			return err
		}
		if len(owned)+len(pods) > 0 {
			return fmt.Errorf("%d objects and %d pods are: %v", len(owned), len(pods), owned)
		}
		return nil
	})
}

func subjectAccessReview(account, verb, group, resource, name string) *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + harness.Namespace + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: harness.Namespace, Verb: verb, Group: group, Resource: resource, Name: name,
		},
	}}
}
