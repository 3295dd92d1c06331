package kube

import (
	"context"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Standalone stands in for a cluster where there is none: no PersistentVolumes, no labels.
type Standalone struct{}

// Get finds nothing.
func (Standalone) Get(context.Context, string) (pv nodeapi.PersistentVolume, ok bool, err error) {
	return pv, false, nil
}

// OfOtherDriver finds nothing.
func (Standalone) OfOtherDriver(context.Context, string) (string, error) { return "", nil }

// List gives nothing.
func (Standalone) List(context.Context) ([]nodeapi.PersistentVolume, error) { return nil, nil }

// Run waits for ctx to end; the node has no labels.
func (Standalone) Run(ctx context.Context, learned func(labels map[string]string)) error {
	learned(nil)
	<-ctx.Done()
	return nil
}
