// Package certificates keeps the certificate of the operator's webhook and metrics servers: it serves what stands in a
// Secret, fills that Secret in one of the four modes, and reports whether the API server can trust it.
package certificates

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/extracache"
)

// Options say which certificate is kept.
type Options struct {
	// Mode is one of certificates.Modes. The authorities to trust are written into the webhook configuration by who
	// makes the Secret, but for ExistingSecret: there the operator copies them.
	Mode string
	// Namespace is where the Secret and the Service are.
	Namespace string
	// Secret contains tls.crt and tls.key, and ca.crt in the modes that write the caBundle.
	Secret string
	// WebhookConfiguration is the ValidatingWebhookConfiguration whose caBundle has to verify the certificate.
	WebhookConfiguration string
	// Service is what the API server calls.
	Service string
}

// DNSName is what the API server expects in the certificate.
func (o Options) DNSName() string { return o.Service + "." + o.Namespace + ".svc" }

func (o Options) writes() bool {
	return o.Mode == certificates.SelfManaged || o.Mode == certificates.ExistingSecret
}

// Setup makes the manager watch the Secret and the webhook configuration, each by its name alone. Every replica serves,
// and writes what is missing: one that waited for the leader would not become ready beside one of an older version,
// which leads until this one is ready, and fills another Secret.
func Setup(mgr ctrl.Manager, options Options) (*Keeper, error) {
	if !slices.Contains(certificates.Modes(), options.Mode) {
		return nil, fmt.Errorf("certificates %q: want one of %s", options.Mode,
			strings.Join(certificates.Modes(), ", "))
	}
	watched, err := extracache.Add(mgr, cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{options.Namespace: {FieldSelector: selectName(options.Secret)}},
			},
			&admissionv1.ValidatingWebhookConfiguration{}: {Field: selectName(options.WebhookConfiguration)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch the webhook's certificate: %w", err)
	}
	keeper := &Keeper{options: options, reader: watched, now: time.Now}
	if err := control(mgr, watched, "certificate-reader", keeper); err != nil {
		return nil, err
	}
	if !options.writes() {
		return keeper, nil
	}
	// What is written is read from the API server: a step that a cache has not seen yet would be taken twice.
	writer := &writer{options: options, reader: mgr.GetAPIReader(), client: mgr.GetClient(), now: time.Now}
	return keeper, control(mgr, watched, "certificate-writer", writer)
}

func selectName(name string) fields.Selector {
	return fields.OneTermEqualSelector("metadata.name", name)
}

// control runs a reconciler once at the start and whenever one of the two objects changes, always with the same
// request.
func control(mgr ctrl.Manager, watched cache.Cache, name string, reconciler reconcile.Reconciler) error {
	c, err := controller.New(name, mgr, controller.Options{Reconciler: reconciler, NeedLeaderElection: new(false)})
	if err != nil {
		return err
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
	once := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
	sources := []source.Source{
		once,
		source.Kind[client.Object](watched, &corev1.Secret{}, enqueue),
		source.Kind[client.Object](watched, &admissionv1.ValidatingWebhookConfiguration{}, enqueue),
	}
	for _, from := range sources {
		if err := c.Watch(from); err != nil {
			return fmt.Errorf("watch the webhook's certificate: %w", err)
		}
	}
	return nil
}
