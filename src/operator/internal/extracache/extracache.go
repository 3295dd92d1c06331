// Package extracache gives a manager a second cache, with rules of its own for what it contains.
package extracache

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Add makes a cache that the manager starts, and fills, before its controllers. The connection, the scheme and the
// mapper are the manager's.
func Add(mgr ctrl.Manager, options cache.Options) (cache.Cache, error) {
	options.HTTPClient, options.Scheme, options.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	made, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	return made, mgr.Add(runnable{made})
}

// runnable is what the manager recognises as a cache.
type runnable struct{ cache.Cache }

// GetCache is how the manager recognises a cache.
func (r runnable) GetCache() cache.Cache { return r.Cache }
