package platform

import (
	"context"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	look := func() { p.lookAtTLSProfile(ctx) }
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { look() },
		UpdateFunc: func(any, any) { look() },
		DeleteFunc: func(any) { look() },
	})
	if p.follows = err == nil; p.follows {
		look() // one that was deleted since New has read it is no event
	}
	return err
}

// lookAtTLSProfile takes the policy that the cache has now.
func (p *Platform) lookAtTLSProfile(ctx context.Context) {
	p.looking.Lock()
	defer p.looking.Unlock()
	if err := p.readTLSProfile(ctx, p.Cache); err != nil {
		p.Log.WarnContext(ctx, "the TLS policy stays as it was", logging.KeyError, err.Error())
		return
	}
	p.Changed()
}

// readTLSProfile takes the policy of the cluster's APIServer; without one, none.
func (p *Platform) readTLSProfile(ctx context.Context, from client.Reader) error {
	server := &configv1.APIServer{}
	if err := from.Get(ctx, client.ObjectKey{Name: apiServerName}, server); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the cluster's TLS profile (APIServer %s): %w", apiServerName, err)
	}
	p.setTLSProfile(server.Spec.TLSSecurityProfile)
	return nil
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
