package app

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// options are those of the controller.
type options struct {
	*endpoint.Options

	kubeconfig, tunnelAddress, servingName, nodeServiceAccount, nodePods string
	certificates, certificateSecret, sharedPools, movesMap, lease        string
	nodeGrace, nodeGoneAfter, orphanAge, certificateInterval             time.Duration
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
	flags.StringVar(&o.lease, "lease", "",
		"Lease of this namespace by which replicas agree which of them reports what nodes say")
	flags.StringVar(&o.sharedPools, "shared-pools", "",
		"ConfigMap of this namespace that remembers which filesystem each pool with scope shared is")
	flags.StringVar(&o.movesMap, "moves", "",
		"ConfigMap of this namespace in which the moves of volumes stand that are under way")
	flags.StringVar(&o.tunnelAddress, "tunnel-address", ":7443", "address that nodes connect to")
	flags.StringVar(&o.servingName, "serving-name", "", "name of its Service, for the certificate")
	flags.StringVar(&o.certificates, "certificates", certificates.SelfManaged,
		"who makes its certificate: "+strings.Join(certificates.Modes(), ", "))
	flags.StringVar(&o.certificateSecret, "certificate-secret", "",
		"Secret of this namespace with its certificate: tls.crt, tls.key and ca.crt")
	flags.StringVar(&o.nodeServiceAccount, "node-service-account", "",
		"ServiceAccount of the driver's pods on the nodes")
	flags.StringVar(&o.nodePods, "node-pods", "", "label selector of the driver's pods on the nodes")
	flags.DurationVar(&o.nodeGrace, "node-grace", time.Minute,
		"how long a node may be away before new volumes are made elsewhere")
	flags.DurationVar(&o.nodeGoneAfter, "node-gone-after", 10*time.Minute,
		"how long there must be no Node object before volumes of that node can be deleted")
	flags.DurationVar(&o.orphanAge, "orphan-age", time.Hour,
		"how old a volume must be to count as orphaned where no PersistentVolume names it")
	const interval = "certificate-interval" // no help lists it: tests make it short
	flags.DurationVar(&o.certificateInterval, interval, 30*time.Second,
		"how soon it serves a certificate that was renewed")
	flags.Lookup(interval).Hidden = true
}

func (o *options) check() error {
	var c command.Check
	o.Check(&c)
	_, _, tunnelErr := net.SplitHostPort(o.tunnelAddress)
	_, podsErr := labels.Parse(o.nodePods)
	positive := func(option string, value time.Duration) {
		c.That(value > 0, option, value, "want a positive duration")
	}
	c.That(o.PodNamespace != "", "--pod-namespace", "", "want the controller's namespace, or set POD_NAMESPACE")
	c.That(o.PodName != "", "--pod-name", "", "want the controller's pod, or set POD_NAME")
	c.That(tunnelErr == nil, "--tunnel-address", o.tunnelAddress, "want host:port or :port")
	c.That(len(validation.IsDNS1123Subdomain(o.servingName)) == 0, "--serving-name", o.servingName, "want a DNS name")
	c.That(slices.Contains(certificates.Modes(), o.certificates), "--certificates", o.certificates,
		"want one of "+strings.Join(certificates.Modes(), ", "))
	c.That(o.certificateSecret != "", "--certificate-secret", "", "want the Secret's name")
	c.That(o.ControllerCA != "", "--controller-ca", "", "want the ConfigMap's name")
	c.That(o.sharedPools != "", "--shared-pools", "", "want the ConfigMap's name")
	c.That(o.movesMap != "", "--moves", "", "want the ConfigMap's name")
	c.That(o.lease != "", "--lease", "", "want the Lease's name")
	c.That(o.nodeServiceAccount != "", "--node-service-account", "", "want the name of a ServiceAccount")
	c.That(o.nodePods != "" && podsErr == nil, "--node-pods", o.nodePods, "want a label selector")
	positive("--node-grace", o.nodeGrace)
	positive("--node-gone-after", o.nodeGoneAfter)
	positive("--orphan-age", o.orphanAge)
	positive("--certificate-interval", o.certificateInterval)
	return c.Err()
}

// serve serves the cluster until ctx ends.
func (o *options) serve(ctx context.Context, stderr io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	specs, err := o.Pools()
	if err != nil {
		return err
	}
	return endpoint.Run(ctx, o.Options, stderr, func(ctx context.Context, p *endpoint.Process) error {
		p.Log.InfoContext(ctx, "starting the controller", logging.KeyVersion, buildinfo.Version(),
			logging.KeyPools, len(specs))
		return (&controller{options: o, Process: p}).build(ctx, specs)
	})
}
