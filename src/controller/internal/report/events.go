package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// poolEvent is an event of a pool, and the volumes that it is about.
type poolEvent struct {
	nodeapi.Event
	volumes []string
}

// events are those of a pool as it is: one of what it is, and one of each warning.
func events(is nodeapi.PoolStatus) (all []poolEvent) {
	if kind, reason, message := eventOf(is); reason != "" {
		all = append(all, poolEvent{Event: nodeapi.Event{
			Kind: kind, Reason: reason, Message: fmt.Sprintf("pool %s: %s", is.Name, message),
			Key: is.Name + " " + reason, Since: is.Since,
		}})
	}
	for _, w := range is.Warnings {
		kind := corev1.EventTypeWarning
		if w.Reason == nodeapi.WarningQuotaChanged { // as it was asked to
			kind = corev1.EventTypeNormal
		}
		all = append(all, poolEvent{nodeapi.Event{
			Kind: kind, Reason: w.Reason, Message: fmt.Sprintf("pool %s: %s", is.Name, w.Message),
			Key: is.Name + " " + w.Reason + " " + strings.Join(w.Volumes, ","), Since: w.Since,
		}, w.Volumes})
	}
	return all
}

// eventOf says what a pool is; reason is "" where that is nothing to report.
func eventOf(is nodeapi.PoolStatus) (kind, reason, message string) {
	switch {
	case is.Reason == nodeapi.ReasonNotChecked, is.Reason == nodeapi.ReasonNotSelected:
		return "", "", ""
	case is.State == nodeapi.StateNotConfigured:
		return corev1.EventTypeWarning, "PoolNotConfigured", is.Message
	case !is.Served():
		return corev1.EventTypeWarning, names.PoolAbsent, is.Reason + ": " + is.Message
	case is.ReadOnly:
		return corev1.EventTypeWarning, "PoolReadOnly", is.Message
	case is.EnforcementLost:
		return corev1.EventTypeWarning, nodeapi.ReasonEnforcementLost,
			"nothing keeps volumes to their size any more: " + is.EnforcementReason
	}
	message = fmt.Sprintf("%s can be used; enforcement of sizes: %s", is.Path, is.Enforcement)
	if is.EnforcementReason != "" {
		message += ", because " + is.EnforcementReason
	}
	return corev1.EventTypeNormal, names.PoolPresent, message
}
