package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/tlspolicy"
)

// options is the command line, with the environment.
type options struct {
	namespace, releaseName, baseConfig, driverName string
	service, webhookConfiguration                  string
	webhookPort                                    int
	certificates, certificateSecret                string
	metricsAddress, healthAddress                  string
	logLevel, logFormat, kubeconfig                string
	tlsMinVersion                                  string
	tlsCipherSuites                                []string
}

func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	flags.StringVar(&o.namespace, "namespace", getenv("POD_NAMESPACE"), "namespace of the operator and of all that it applies (environment: POD_NAMESPACE)")
	flags.StringVar(&o.releaseName, "release-name", "hostpath-provisioner", "name of the operator's Helm release; names of objects begin with it")
	flags.StringVar(&o.baseConfig, "base-config", "hostpath-provisioner-operator-base", "ConfigMap with the base values, key values.yaml")
	flags.StringVar(&o.driverName, "driver-name", names.Driver, "name of the CSI driver whose volumes hold a deletion")
	flags.StringVar(&o.service, "service", "hostpath-provisioner-operator", "Service of webhook and metrics")
	flags.StringVar(&o.webhookConfiguration, "webhook-configuration", "hostpath-provisioner-operator", "ValidatingWebhookConfiguration that calls the webhook")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhook")
	flags.StringVar(&o.certificates, "certificates", certificates.SelfManaged, "where the webhook's certificate comes from: "+strings.Join(certificates.Modes(), ", "))
	flags.StringVar(&o.certificateSecret, "certificate-secret", "hostpath-provisioner-operator-certificate", "Secret with the webhook's certificate")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8443", "address of /metrics, served over TLS; 0 for none")
	flags.StringVar(&o.healthAddress, "health-address", ":8081", "address of /livez and /readyz")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
}

// validate gives all that is wrong, one line per option.
func (o *options) validate() error {
	_, logErr := logging.New(io.Discard, o.logLevel, o.logFormat)
	_, tlsErr := tlspolicy.New(o.overrides())
	var problems []error
	for _, rule := range []struct {
		what   string
		broken bool
		want   string
	}{
		{
			"--namespace", len(validation.IsDNS1123Label(o.namespace)) > 0,
			fmt.Sprintf("%q: want the operator's namespace, or set POD_NAMESPACE", o.namespace),
		},
		{"--release-name", badName(o.releaseName), fmt.Sprintf("%q: want the name of a Helm release", o.releaseName)},
		{"--base-config", badName(o.baseConfig), fmt.Sprintf("%q: want the name of a ConfigMap", o.baseConfig)},
		{"--driver-name", len(o.driverName) > 63 || badName(o.driverName), fmt.Sprintf("%q: want at most 63 of a-z, 0-9, - and .", o.driverName)},
		{"--service", len(validation.IsDNS1035Label(o.service)) > 0, fmt.Sprintf("%q: want the name of a Service", o.service)},
		{
			"--webhook-configuration", badName(o.webhookConfiguration),
			fmt.Sprintf("%q: want the name of a ValidatingWebhookConfiguration", o.webhookConfiguration),
		},
		{"--webhook-port", o.webhookPort < 1 || o.webhookPort > 65535, fmt.Sprintf("%d: want 1 to 65535", o.webhookPort)},
		{
			"--certificates", !slices.Contains(certificates.Modes(), o.certificates),
			fmt.Sprintf("%q: want one of %s", o.certificates, strings.Join(certificates.Modes(), ", ")),
		},
		{"--certificate-secret", badName(o.certificateSecret), fmt.Sprintf("%q: want the name of a Secret", o.certificateSecret)},
		{"--metrics-address", o.metricsAddress != "0" && !command.IsAddress(o.metricsAddress), fmt.Sprintf("%q: want host:port, :port or 0", o.metricsAddress)},
		{"--health-address", !command.IsAddress(o.healthAddress), fmt.Sprintf("%q: want host:port or :port", o.healthAddress)},
		{"--log-level or --log-format", logErr != nil, fmt.Sprint(logErr)},
		{"TLS_MIN_VERSION_OVERRIDE or TLS_CIPHERS_OVERRIDE", tlsErr != nil, fmt.Sprint(tlsErr)},
	} {
		if rule.broken {
			problems = append(problems, fmt.Errorf("%s: %s", rule.what, rule.want))
		}
	}
	return errors.Join(problems...)
}

func (o *options) overrides() tlspolicy.Overrides {
	return tlspolicy.Overrides{MinVersion: o.tlsMinVersion, CipherSuites: o.tlsCipherSuites}
}

func badName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }
