package kube

import (
	"context"
	"log/slog"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Standalone stands in for a cluster where there is none: no PersistentVolumes, no labels, and events go to the log.
type Standalone struct{ Log *slog.Logger }

// Volume finds nothing.
func (Standalone) Volume(context.Context, string) (pv volume.PersistentVolume, ok bool, err error) {
	return pv, false, nil
}

// Volumes lists nothing.
func (Standalone) Volumes(context.Context) ([]volume.PersistentVolume, error) { return nil, nil }

// Normal logs an event.
func (s Standalone) Normal(reason, message string) {
	s.Log.Info("event", logging.KeyReason, reason, logging.KeyMessage, message)
}

// Warning logs an event.
func (s Standalone) Warning(reason, message string) {
	s.Log.Warn("event", logging.KeyReason, reason, logging.KeyMessage, message)
}

// Report logs conditions.
func (s Standalone) Report(_ context.Context, conditions []Condition) error {
	for _, c := range conditions {
		s.Log.Info("condition", logging.KeyReason, c.Reason, logging.KeyMessage, c.Message)
	}
	return nil
}

// Tell logs an event on a claim.
func (s Standalone) Tell(claim volume.Claim, reason, message string) {
	s.Log.Info("event", logging.KeyClaim, claim.Namespace+"/"+claim.Name, logging.KeyReason, reason, logging.KeyMessage, message)
}

// Run waits for ctx to end; the node has no labels.
func (Standalone) Run(ctx context.Context, tell func(labels map[string]string)) error {
	tell(nil)
	<-ctx.Done()
	return nil
}
