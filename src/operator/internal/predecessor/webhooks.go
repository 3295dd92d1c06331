package predecessor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// webhookPath is where kubevirt's webhook serves; OLM gives its configuration another name each time, but not another
// path.
const webhookPath = "/validate-hostpathprovisioner-kubevirt-io-v1beta1-hostpathprovisioner"

// Refused reports whether an error is that of a webhook that could not be called.
func Refused(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// Obstacles are what refuses every change of a HostPathProvisioner once nobody serves it: a sentence, with the command
// that ends it, or "" where there is nothing of kubevirt's.
func (p *Predecessor) Obstacles(ctx context.Context) (string, error) {
	there, err := p.webhooks(ctx)
	if err != nil || len(there) == 0 {
		return "", err
	}
	commands := make([]string, len(there))
	for i := range there {
		commands[i] = "kubectl delete validatingwebhookconfiguration " + there[i].Name
	}
	return fmt.Sprintf("kubevirt's webhook refuses every change of this resource, its deletion too, for its operator "+
		"does not answer any more: run `%s`", strings.Join(commands, " && ")), nil
}

// RemoveWebhook takes down the webhook of an operator that does not run any more, where it has the name of kubevirt's
// manifests.
func (p *Predecessor) RemoveWebhook(ctx context.Context) error {
	there, err := p.webhooks(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(there,
		func(c admissionv1.ValidatingWebhookConfiguration) bool { return c.Name == webhookName })
	if i < 0 {
		return nil
	}
	return p.remove(ctx, &there[i])
}

// webhooks are the configurations that call kubevirt's operator.
func (p *Predecessor) webhooks(ctx context.Context) ([]admissionv1.ValidatingWebhookConfiguration, error) {
	var list admissionv1.ValidatingWebhookConfigurationList
	if err := p.Live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("find kubevirt's webhook: list ValidatingWebhookConfigurations: %w", advise(err))
	}
	return slices.DeleteFunc(list.Items, func(configuration admissionv1.ValidatingWebhookConfiguration) bool {
		ours := configuration.Name == p.WebhookConfiguration || configuration.Labels[componentLabel] == "operator"
		return ours || !slices.ContainsFunc(configuration.Webhooks, callsKubevirts)
	}), nil
}

// callsKubevirts reports whether a webhook asks kubevirt's operator about HostPathProvisioners.
func callsKubevirts(webhook admissionv1.ValidatingWebhook) bool {
	service := webhook.ClientConfig.Service
	if service == nil || service.Path == nil || *service.Path != webhookPath {
		return false
	}
	return slices.ContainsFunc(webhook.Rules, func(rule admissionv1.RuleWithOperations) bool {
		return slices.Contains(rule.APIGroups, names.Group) || slices.Contains(rule.APIGroups, "*")
	})
}
