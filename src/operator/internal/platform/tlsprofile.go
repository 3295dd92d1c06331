package platform

import (
	"context"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// apiServerName is the only name that OpenShift's APIServer has.
const apiServerName = "cluster"

func apiServerKind() schema.GroupVersionKind { return configv1.GroupVersion.WithKind("APIServer") }

// followTLSProfile watches OpenShift's APIServer as soon as there is such an API.
func (p *Platform) followTLSProfile(ctx context.Context) error {
	served := p.Facts().Serves(apiServerKind())
	switch {
	case served == p.follows:
		return nil
	case !served:
		p.follows = false
		p.setTLSProfile(nil)
		return p.Cache.RemoveInformer(ctx, &configv1.APIServer{})
	}
	informer, err := p.Cache.GetInformer(ctx, &configv1.APIServer{})
	if err != nil {
		return fmt.Errorf("watch OpenShift's APIServer: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(added any) { p.setProfile(added, false) },
		UpdateFunc: func(_, changed any) { p.setProfile(changed, false) },
		DeleteFunc: func(deleted any) { p.setProfile(deleted, true) },
	})
	p.follows = err == nil
	return err
}

func (p *Platform) setProfile(object any, deleted bool) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	server, ok := object.(*configv1.APIServer)
	if !ok || server.Name != apiServerName {
		return
	}
	if deleted {
		p.setTLSProfile(nil)
	} else {
		p.setTLSProfile(server.Spec.TLSSecurityProfile)
	}
	p.Changed()
}

// setTLSProfile sets the policy, and logs what of it is new and cannot be followed as it is written.
func (p *Platform) setTLSProfile(profile *configv1.TLSSecurityProfile) {
	before := p.Policy.Notes()
	p.Policy.SetProfile(profile)
	for _, note := range p.Policy.Notes() {
		if !slices.Contains(before, note) {
			p.Log.Warn("the TLS policy cannot be followed as it is written", logging.KeyMessage, note)
		}
	}
}
