package certificates

import (
	"bytes"
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
)

// owner is the field manager of what is written here.
const owner = client.FieldOwner("hostpath-provisioner-operator-certificates")

// writer fills the Secret where that is the operator's task, and writes the authority to trust into the webhook
// configuration. Two may run at once: a step from what is no longer there is refused as a conflict, and looked at
// again.
type writer struct {
	options Options
	reader  client.Reader
	client  client.Writer
	now     func() time.Time
}

// Reconcile takes all steps that are due, each trusted before the next, and comes back when one will be due again.
func (w *writer) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	for {
		data, stepped, err := w.secret(ctx)
		if err != nil || data == nil {
			return reconcile.Result{}, err
		}
		if err := w.writeTrust(ctx, data[certificates.AuthoritiesKey]); err != nil {
			return reconcile.Result{}, err
		}
		if stepped {
			continue
		}
		return w.nextStep(data)
	}
}

// secret gives what the Secret contains, after the next step where the operator fills it. Nil: there is none to wait
// for. The operator makes no Secret, because that right cannot be held to one name; its coming is watched.
func (w *writer) secret(ctx context.Context) (data map[string][]byte, stepped bool, err error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.Namespace, Name: w.options.Secret}}
	err = w.reader.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read the webhook's certificate: %w", err)
	case w.options.Mode != certificates.SelfManaged:
		return secret.Data, false, nil
	}
	next, stepped, err := certificates.Issue(secret.Data, w.options.DNSName(), w.now())
	if err != nil || !stepped {
		return next, false, err
	}
	secret.Data = next
	if err := w.client.Update(ctx, secret, owner); err != nil {
		return nil, false, fmt.Errorf("write the webhook's certificate: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("the webhook's certificate was renewed")
	return next, true, nil
}

// writeTrust writes the authorities into the webhook configuration. Without one there is nothing to do: it is the
// chart's, and its coming is watched.
func (w *writer) writeTrust(ctx context.Context, bundle []byte) error {
	if len(certificates.Merge(w.now(), bundle)) == 0 {
		// Trying again helps nobody; a change of the Secret is watched.
		return reconcile.TerminalError(fmt.Errorf("the Secret %s/%s: its ca.crt contains no valid certificate: "+
			"it has to be the authority of its tls.crt", w.options.Namespace, w.options.Secret))
	}
	var configuration admissionv1.ValidatingWebhookConfiguration
	err := w.reader.Get(ctx, client.ObjectKey{Name: w.options.WebhookConfiguration}, &configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the webhook configuration: %w", err)
	}
	before := configuration.DeepCopy()
	changed := false
	for i := range configuration.Webhooks {
		to := &configuration.Webhooks[i].ClientConfig
		changed = changed || !bytes.Equal(to.CABundle, bundle)
		to.CABundle = bundle
	}
	if !changed {
		return nil
	}
	// Merged by the webhooks' names: what others write beside it stays.
	if err := w.client.Patch(ctx, &configuration, client.StrategicMergeFrom(before), owner); err != nil {
		return fmt.Errorf("write the caBundle into the webhook configuration: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("the webhook configuration trusts the certificate's authorities")
	return nil
}

// nextStep is until the next step, where the operator takes it.
func (w *writer) nextStep(data map[string][]byte) (reconcile.Result, error) {
	if w.options.Mode != certificates.SelfManaged {
		return reconcile.Result{}, nil
	}
	due, err := certificates.Renewal(data)
	return reconcile.Result{RequeueAfter: max(due.Sub(w.now()), time.Second)}, err
}
