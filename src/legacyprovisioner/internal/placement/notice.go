package placement

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/util"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Reasons of the events on claims.
const (
	// ReasonNodeNeeded: the class binds immediately and the claim names no node.
	ReasonNodeNeeded = "WaitingForAnnotation"
	// ReasonNodeUnknown: the annotation names a node that does not exist.
	ReasonNodeUnknown = "NodeNotFound"
	// ReasonContradiction: the annotation and the scheduler name different nodes.
	ReasonContradiction = "NodeConflict"
)

const (
	// maxNodes is how many nodes an event names; all would not fit a large cluster.
	maxNodes = 10
	// maxMessage is what the API takes as an event's message, in bytes.
	maxMessage = 1024
)

// notice is something that the user of a claim should know.
type notice struct {
	reason string
	// about distinguishes notices of one reason; it is the same on all nodes.
	about   string
	message string
}

func wanted(claim *corev1.PersistentVolumeClaim) string {
	return claim.Annotations[names.ProvisionOnNode]
}

func nodeNeeded(claim *corev1.PersistentVolumeClaim) notice {
	class := util.GetPersistentVolumeClaimClass(claim)
	return notice{reason: ReasonNodeNeeded, about: class, message: fmt.Sprintf(
		"StorageClass %s binds immediately, so nothing chooses a node for this volume: name one with "+
			"`kubectl annotate pvc --namespace=%s %s %s=NODE`, or use a class with volumeBindingMode "+
			"WaitForFirstConsumer",
		class, claim.Namespace, claim.Name, names.ProvisionOnNode)}
}

func nodeUnknown(claim *corev1.PersistentVolumeClaim, nodes []corev1.Node) notice {
	var known []string
	for _, node := range nodes {
		known = append(known, node.Name)
	}
	if len(known) > maxNodes {
		known = append(known[:maxNodes], "and others")
	}
	return notice{reason: ReasonNodeUnknown, about: wanted(claim), message: fmt.Sprintf(
		"annotation %s: there is no node %q; the nodes are %s; correct it with `kubectl annotate --overwrite pvc "+
			"--namespace=%s %s %s=NODE`",
		names.ProvisionOnNode, wanted(claim), strings.Join(known, ", "), claim.Namespace, claim.Name,
		names.ProvisionOnNode)}
}

func contradiction(claim *corev1.PersistentVolumeClaim) notice {
	node, selected := wanted(claim), claim.Annotations[SelectedNode]
	return notice{reason: ReasonContradiction, about: node + "\x00" + selected, message: fmt.Sprintf(
		"the scheduler chose node %s, but annotation %s says %s and wins: the volume is made on %s; a pod that has "+
			"other volumes on %s cannot be scheduled, so give all claims of a pod the annotation with the "+
			"same node, or none",
		selected, names.ProvisionOnNode, node, node, selected)}
}

// notify makes an event on the claim. All instances give it the same name, so that it is there once however many nodes
// there are; it comes back as long as its reason lasts, after the API server has dropped it.
func (w *Watcher) notify(ctx context.Context, claim *corev1.PersistentVolumeClaim, n notice) error {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(n.reason + "\x00" + n.about)) // cannot fail
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	_, err := w.Client.CoreV1().Events(claim.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: fmt.Sprintf("pvc-%s.%x", claim.UID, hash.Sum64()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
			UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: n.reason,
		Message:        strings.ToValidUTF8(n.message[:min(len(n.message), maxMessage)], ""),
		Source:         corev1.EventSource{Component: names.LegacyProvisioner, Host: w.Node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: names.LegacyProvisioner, ReportingInstance: w.Node,
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("say on the claim that %s: %w", n.message, err)
	}
	w.Log.WarnContext(ctx, "a claim cannot have its volume as it is",
		logging.KeyClaim, claim.Namespace+"/"+claim.Name, logging.KeyReason, n.reason, logging.KeyMessage, n.message)
	return nil
}
