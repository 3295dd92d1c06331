package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
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
	takeoverInterval, finalizerGrace               time.Duration
}

func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	flags.StringVar(&o.namespace, "namespace", getenv("POD_NAMESPACE"),
		"namespace of the operator and of all that it applies (environment: POD_NAMESPACE)")
	flags.StringVar(&o.releaseName, "release-name", "hostpath-provisioner",
		"name of the operator's Helm release; names of objects begin with it")
	flags.StringVar(&o.baseConfig, "base-config", "hostpath-provisioner-operator-base",
		"ConfigMap with the base values, key values.yaml")
	flags.StringVar(&o.driverName, "driver-name", names.Driver, "name of the CSI driver whose volumes block a deletion")
	flags.StringVar(&o.service, "service", "hostpath-provisioner-operator", "Service of webhook and metrics")
	flags.StringVar(&o.webhookConfiguration, "webhook-configuration", "hostpath-provisioner-operator",
		"ValidatingWebhookConfiguration that calls the webhook")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhook")
	flags.StringVar(&o.certificates, "certificates", certificates.SelfManaged,
		"where the webhook's certificate comes from: "+strings.Join(certificates.Modes(), ", "))
	flags.StringVar(&o.certificateSecret, "certificate-secret", "hostpath-provisioner-operator-tls",
		"Secret with the webhook's certificate")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8443", "address of /metrics, served over TLS; 0 for none")
	flags.StringVar(&o.healthAddress, "health-address", ":8081", "address of /livez and /readyz")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
	o.addPeriods(flags)
}

// addPeriods adds flags that no help lists: tests make these periods short.
func (o *options) addPeriods(flags *pflag.FlagSet) {
	const interval, grace = "takeover-interval", "finalizer-grace"
	flags.DurationVar(&o.takeoverInterval, interval, 10*time.Second,
		"how often it is looked whether what kubevirt's operator runs has ended")
	flags.DurationVar(&o.finalizerGrace, grace, time.Minute,
		"how soon after it was removed kubevirt's finalizer means an operator that puts it back")
	for _, name := range []string{interval, grace} {
		flags.Lookup(name).Hidden = true
	}
}

// validate gives all that is wrong, one line per option.
func (o *options) validate() error {
	var c command.Check
	name := func(option, value, of string) {
		c.That(len(validation.IsDNS1123Subdomain(value)) == 0, option, value, "want the name of a "+of)
	}
	positive := func(option string, value time.Duration) {
		c.That(value > 0, option, value, "want a positive duration")
	}
	c.That(len(validation.IsDNS1123Label(o.namespace)) == 0, "--namespace", o.namespace,
		"want the operator's namespace, or set POD_NAMESPACE")
	name("--release-name", o.releaseName, "Helm release")
	name("--base-config", o.baseConfig, "ConfigMap")
	c.That(len(o.driverName) <= 63 && len(validation.IsDNS1123Subdomain(o.driverName)) == 0, "--driver-name",
		o.driverName, "want at most 63 of a-z, 0-9, - and .")
	c.That(len(validation.IsDNS1035Label(o.service)) == 0, "--service", o.service, "want the name of a Service")
	name("--webhook-configuration", o.webhookConfiguration, "ValidatingWebhookConfiguration")
	c.That(o.webhookPort >= 1 && o.webhookPort <= 65535, "--webhook-port", o.webhookPort, "want 1 to 65535")
	c.That(slices.Contains(certificates.Modes(), o.certificates), "--certificates", o.certificates,
		"want one of "+strings.Join(certificates.Modes(), ", "))
	name("--certificate-secret", o.certificateSecret, "Secret")
	c.That(o.metricsAddress == "0" || command.IsAddress(o.metricsAddress), "--metrics-address", o.metricsAddress,
		"want host:port, :port or 0")
	c.That(command.IsAddress(o.healthAddress), "--health-address", o.healthAddress, "want host:port or :port")
	positive("--takeover-interval", o.takeoverInterval)
	positive("--finalizer-grace", o.finalizerGrace)
	c.Log(o.logLevel, o.logFormat)
	_, err := tlspolicy.New(o.overrides())
	c.That(err == nil, "TLS_MIN_VERSION_OVERRIDE or TLS_CIPHERS_OVERRIDE", nil, fmt.Sprint(err))
	return c.Err()
}

func (o *options) overrides() tlspolicy.Overrides {
	return tlspolicy.Overrides{MinVersion: o.tlsMinVersion, CipherSuites: o.tlsCipherSuites}
}
