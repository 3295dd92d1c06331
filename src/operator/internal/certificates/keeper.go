package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
)

// Keeper keeps the certificate that is served. It is safe for concurrent use.
type Keeper struct {
	options Options
	reader  client.Reader
	now     func() time.Time

	mu sync.RWMutex
	// pair is what the servers show. It stays when the Secret goes or is spoilt.
	pair *tls.Certificate
	// fault is why there is no pair; nil before anything was read.
	fault error
	// bundles are the caBundles of the configuration's webhooks, nil without a configuration.
	bundles map[string][]byte
}

// GetCertificate is for tls.Config: a Secret that was renewed is served from the next handshake on.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.pair == nil {
		return nil, k.missing()
	}
	return k.pair, nil
}

// Ready is a health check: nil only if the API server, which trusts the configuration's caBundle, can verify the
// certificate that is being served.
func (k *Keeper) Ready(*http.Request) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.pair == nil {
		return k.missing()
	}
	if len(k.bundles) == 0 {
		return fmt.Errorf("the ValidatingWebhookConfiguration %s is not there, or names no webhook: "+
			"upgrade the release again to get it back", k.options.WebhookConfiguration)
	}
	for webhook, bundle := range k.bundles {
		if len(bundle) == 0 {
			return fmt.Errorf("the webhook %s of the ValidatingWebhookConfiguration %s has no caBundle yet: %s",
				webhook, k.options.WebhookConfiguration, k.options.whoTrusts())
		}
		if err := certificates.Verify(k.pair, bundle, k.options.DNSName(), k.now()); err != nil {
			return fmt.Errorf("the caBundle of the webhook %s in the ValidatingWebhookConfiguration %s does not "+
				"verify the certificate that is served: %w; %s",
				webhook, k.options.WebhookConfiguration, err, k.options.whoTrusts())
		}
	}
	return nil
}

// Reconcile takes over what stands in the Secret and in the webhook configuration.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	pair, fault, err := k.readPair(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	bundles, err := k.readBundles(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bundles, k.fault = bundles, fault
	if pair != nil {
		k.pair = pair
	}
	return reconcile.Result{}, nil
}

// readPair gives the Secret's certificate, or what is wrong with the Secret; err says that it could not be read.
func (k *Keeper) readPair(ctx context.Context) (pair *tls.Certificate, fault, err error) {
	var secret corev1.Secret
	err = k.reader.Get(ctx, client.ObjectKey{Namespace: k.options.Namespace, Name: k.options.Secret}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, errors.New("it is not there"), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the webhook's certificate: %w", err)
	}
	pair, fault = certificates.Pair(secret.Data)
	return pair, fault, nil
}

func (k *Keeper) readBundles(ctx context.Context) (map[string][]byte, error) {
	var configuration admissionv1.ValidatingWebhookConfiguration
	err := k.reader.Get(ctx, client.ObjectKey{Name: k.options.WebhookConfiguration}, &configuration)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the webhook configuration: %w", err)
	}
	bundles := map[string][]byte{}
	for _, webhook := range configuration.Webhooks {
		bundles[webhook.Name] = webhook.ClientConfig.CABundle
	}
	return bundles, nil
}

// missing says why there is nothing to serve.
func (k *Keeper) missing() error {
	fault := k.fault
	if fault == nil {
		fault = errors.New("it has not been read yet")
	}
	return certificates.Source{
		Mode: k.options.Mode, Secret: k.options.Secret, DNSName: k.options.DNSName(),
		Maker: "the chart makes it for the operator to fill: upgrade the release to get it back, or see the " +
			"operator's log",
	}.Missing(fault)
}

// whoTrusts says where to look when the caBundle is not right.
func (o Options) whoTrusts() string {
	switch o.Mode {
	case certificates.CertManager:
		return "cert-manager's cainjector writes it: see whether it runs"
	case certificates.OpenShift:
		return "OpenShift's service CA writes it: see the project openshift-service-ca"
	case certificates.ExistingSecret:
		return "the operator's leader copies it from ca.crt of the Secret " + o.Namespace + "/" + o.Secret +
			", which has to be the authority of its tls.crt"
	default:
		return "the operator writes it: see its log"
	}
}
