package kube

import (
	"context"
	"log/slog"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Standalone stands in for a cluster where there is none: no PersistentVolumes, no labels, and events go to the log.
type Standalone struct{ Log *slog.Logger }

// Get finds nothing.
func (Standalone) Get(context.Context, string) (pv pool.PersistentVolume, ok bool, err error) {
	return pv, false, nil
}

// List gives nothing.
func (Standalone) List(context.Context) ([]pool.PersistentVolume, error) { return nil, nil }

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
func (s Standalone) Tell(claim records.Claim, reason, message string) {
	s.Log.Info("event", logging.KeyClaim, claim.Namespace+"/"+claim.Name, logging.KeyReason, reason, logging.KeyMessage,
		message)
}

// Run waits for ctx to end; the node has no labels.
func (Standalone) Run(ctx context.Context, learned func(labels map[string]string)) error {
	learned(nil)
	<-ctx.Done()
	return nil
}
