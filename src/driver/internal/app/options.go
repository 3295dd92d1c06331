package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/servingtls"
)

// Modes of the driver.
const (
	modeNode       = "node"
	modeController = "controller"
)

// Defaults that the chart and the documentation name as well.
const (
	defaultTopologyKey = "topology.hostpath.csi/node"
	defaultStateDir    = "/var/lib/hostpath-provisioner-state"
	defaultKubeletDir  = "/var/lib/kubelet"
)

// options is the command line.
type options struct {
	mode, endpoint, driverName, topologyKey, nodeName       string
	config, stateDir, hostRoot, kubeletDir, registrationDir string
	registration, standalone, reportPools                   bool
	kubeconfig, podName, podNamespace                       string
	httpAddress, metricsTLSAddress                          string
	metricsTLS                                              servingtls.Options
	logLevel, logFormat                                     string

	// The tunnel: how a node finds the controller, and what the controller needs to know about nodes.
	controller, controllerCA, controllerToken, daemonSet     string
	sharedPools                                              string
	tunnelAddress, servingName, nodeServiceAccount, nodePods string
	certificates, certificateSecret                          string
	nodeGrace, nodeGoneAfter, orphanAge, certificateInterval time.Duration
}

func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	flags.StringVar(&o.endpoint, "endpoint", "unix://"+defaultKubeletDir+"/plugins/"+names.Driver+"/csi.sock",
		"the CSI socket, as unix:///path; the kubelet must see it at the same path")
	flags.StringVar(&o.driverName, "driver-name", names.Driver, "name of the CSI driver")
	flags.StringVar(&o.topologyKey, "topology-key", defaultTopologyKey, "topology segment that names a volume's node")
	flags.StringVar(&o.nodeName, "node-name", getenv("NODE_NAME"), "name of this node (environment: NODE_NAME)")
	flags.StringVar(&o.config, "config", "/etc/hostpath-provisioner/config.yaml", "file with the storage pools")
	flags.StringVar(&o.hostRoot, "host-root", "/host",
		"where the host's / is mounted; / when running on the host itself")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", defaultKubeletDir, "the kubelet's directory, mounted at its own path")
	flags.BoolVar(&o.registration, "registration", true,
		"register with the kubelet; false where a registrar sidecar does")
	flags.StringVar(&o.registrationDir, "registration-dir", "",
		"where the kubelet looks for plugins (default <kubelet-dir>/plugins_registry)")
	flags.StringVar(&o.httpAddress, "http-address", ":9898",
		"address of /healthz, /readyz and /metrics; empty for none")
	flags.StringVar(&o.metricsTLSAddress, "metrics-tls-address", "",
		"address of /metrics over TLS, which --http-address then does not have; empty for none")
	flags.StringVar(&o.metricsTLS.CertDir, "metrics-tls-cert-dir", "",
		"directory with tls.crt and tls.key, read again when they change")
	flags.StringVar(&o.metricsTLS.MinVersion, "metrics-tls-min-version", "", "least TLS version (default VersionTLS12)")
	flags.StringSliceVar(&o.metricsTLS.CipherSuites, "metrics-tls-cipher-suites", nil,
		"suites of TLS 1.2 and older by their IANA names (default those of Mozilla's intermediate profile)")
	flags.BoolVar(&o.reportPools, "report-pools", false, "say in the conditions of this pod whether each pool is there")
	flags.StringVar(&o.podName, "pod-name", getenv("POD_NAME"), "name of this pod (environment: POD_NAME)")
	flags.StringVar(&o.mode, "mode", modeNode,
		"node: serve the pools of this node; controller: serve upstream's sidecars for all nodes")
	flags.StringVar(&o.podNamespace, "pod-namespace", getenv("POD_NAMESPACE"), "its namespace (or POD_NAMESPACE)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
	flags.BoolVar(&o.standalone, "standalone", false, "use no Kubernetes API at all, for tests")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	o.addTunnelFlags(flags)
}

func (o *options) addTunnelFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.controllerCA, "controller-ca", "",
		"ConfigMap of this namespace with the authorities of the controller's certificate")
	flags.StringVar(&o.sharedPools, "shared-pools", "",
		"controller: ConfigMap of this namespace that remembers which filesystem each pool with scope shared is")
	flags.StringVar(&o.controller, "controller", "",
		"node: host:port of the controller's Service, empty for no controller; the host is the name in its certificate")
	flags.StringVar(&o.controllerToken, "controller-token", "/var/run/secrets/hostpath-provisioner/token",
		"node: file with the token that shows the controller which node this is")
	flags.StringVar(&o.daemonSet, "daemon-set", "",
		"node: DaemonSet of this pod; the kubelet keeps the driver registered until that is gone")
	flags.StringVar(&o.tunnelAddress, "tunnel-address", ":7443", "controller: address that nodes connect to")
	flags.StringVar(&o.servingName, "serving-name", "", "controller: name of its Service, for the certificate")
	flags.StringVar(&o.certificates, "certificates", certificates.SelfManaged,
		"controller: who makes its certificate: "+strings.Join(certificates.Modes(), ", "))
	flags.StringVar(&o.certificateSecret, "certificate-secret", "",
		"controller: Secret of this namespace with its certificate: tls.crt, tls.key and ca.crt")
	flags.StringVar(&o.nodeServiceAccount, "node-service-account", "",
		"controller: ServiceAccount of the driver's pods on the nodes")
	flags.StringVar(&o.nodePods, "node-pods", "", "controller: label selector of the driver's pods on the nodes")
	flags.DurationVar(&o.nodeGrace, "node-grace", time.Minute,
		"controller: how long a node may be away before new volumes are made elsewhere")
	flags.DurationVar(&o.nodeGoneAfter, "node-gone-after", 10*time.Minute,
		"controller: how long there must be no Node object before volumes of that node can be deleted")
	flags.DurationVar(&o.orphanAge, "orphan-age", time.Hour,
		"controller: how old a volume must be to count as orphaned where no PersistentVolume names it")
	const interval = "certificate-interval" // no help lists it: tests make it short
	flags.DurationVar(&o.certificateInterval, interval, 30*time.Second,
		"controller: how soon it serves a certificate that was renewed")
	flags.Lookup(interval).Hidden = true
}

// validate gives all that is wrong, one line per option.
func (o *options) validate() (err error) {
	_, endpointErr := rpc.SocketPath(o.endpoint)
	_, logErr := logging.New(io.Discard, o.logLevel, o.logFormat)
	_, versionErr := servingtls.Version(o.metricsTLS.MinVersion)
	_, suitesErr := servingtls.Suites(o.metricsTLS.CipherSuites)
	const (
		name    = "want a DNS name of at most 63 of a-z, 0-9, - and ."
		path    = "want a clean absolute path"
		ownPath = path + " other than /"
		address = "want host:port, :port or nothing"
	)
	isName := func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }
	isAddress := func(s string) bool { return s == "" || command.IsAddress(s) }
	rules := []rule{
		{"endpoint", o.endpoint, endpointErr == nil, "want unix:///absolute/path"},
		{"driver-name", o.driverName, len(o.driverName) <= 63 && isName(o.driverName), name},
		{"topology-key", o.topologyKey, len(validation.IsQualifiedName(o.topologyKey)) == 0, "want a label key"},
		{"node-name", o.nodeName, isName(o.nodeName), "want the node's name in the cluster, or set NODE_NAME"},
		{"config", o.config, o.config != "", "want the path of a file"},
		{"state-dir", o.stateDir, cleanPath(o.stateDir) && o.stateDir != "/", ownPath},
		{"host-root", o.hostRoot, cleanPath(o.hostRoot), path},
		{"kubelet-dir", o.kubeletDir, cleanPath(o.kubeletDir) && o.kubeletDir != "/", ownPath},
		{"registration-dir", o.registrationDir, cleanPath(o.registrationDir), path},
		{"http-address", o.httpAddress, isAddress(o.httpAddress), address},
		{"metrics-tls-address", o.metricsTLSAddress, isAddress(o.metricsTLSAddress), address},
		{
			"metrics-tls-cert-dir", o.metricsTLS.CertDir, (o.metricsTLSAddress == "") == (o.metricsTLS.CertDir == ""),
			"want it with --metrics-tls-address, or neither",
		},
		{"metrics-tls-min-version", o.metricsTLS.MinVersion, versionErr == nil, fmt.Sprint(versionErr)},
		{"metrics-tls-cipher-suites", fmt.Sprint(o.metricsTLS.CipherSuites), suitesErr == nil, fmt.Sprint(suitesErr)},
		{
			"report-pools", o.podNamespace + "/" + o.podName,
			!o.reportPools || (o.podName != "" && o.podNamespace != ""),
			"want --pod-name and --pod-namespace, or POD_NAME and POD_NAMESPACE",
		},
		{
			"mode", o.mode, o.mode == modeNode || (o.mode == modeController && !o.standalone),
			"want " + modeNode + ", or without --standalone " + modeController,
		},
		{"kubeconfig", o.kubeconfig, o.kubeconfig == "" || !o.standalone, "want this or --standalone"},
		{"log-level or --log-format", o.logLevel + ", " + o.logFormat, logErr == nil, fmt.Sprint(logErr)},
	}
	for _, r := range slices.Concat(rules, o.tunnelRules()) {
		if !r.met {
			err = errors.Join(err, fmt.Errorf("--%s: %q: %s", r.flag, r.value, r.want))
		}
	}
	return err
}

// rule is what an option's value has to be.
type rule struct {
	flag, value string
	met         bool
	want        string
}

// tunnelRules are about nodes that have a controller, and about the controller.
func (o *options) tunnelRules() []rule {
	host, _, addressErr := net.SplitHostPort(o.controller)
	inCluster := o.podNamespace != "" && !o.standalone
	if o.mode == modeNode {
		return []rule{
			{
				"controller", o.controller, o.controller == "" || addressErr == nil && host != "" && inCluster,
				"want host:port with --pod-namespace (or POD_NAMESPACE) and without --standalone, or nothing",
			},
			{"controller-ca", o.controllerCA, o.controller == "" || o.controllerCA != "", "want the ConfigMap's name"},
			{
				"daemon-set", o.daemonSet, o.daemonSet == "" || inCluster,
				"want --pod-namespace (or POD_NAMESPACE) with it",
			},
		}
	}
	_, _, tunnelErr := net.SplitHostPort(o.tunnelAddress)
	_, podsErr := labels.Parse(o.nodePods)
	return []rule{
		{
			"pod-namespace", o.podNamespace, o.podNamespace != "",
			"want the controller's namespace, or set POD_NAMESPACE",
		},
		{"pod-name", o.podName, o.podName != "", "want the controller's pod, or set POD_NAME"},
		{"tunnel-address", o.tunnelAddress, tunnelErr == nil, "want host:port or :port"},
		{"serving-name", o.servingName, len(validation.IsDNS1123Subdomain(o.servingName)) == 0, "want a DNS name"},
		{
			"certificates", o.certificates, slices.Contains(certificates.Modes(), o.certificates),
			"want one of " + strings.Join(certificates.Modes(), ", "),
		},
		{"certificate-secret", o.certificateSecret, o.certificateSecret != "", "want the Secret's name"},
		{"controller-ca", o.controllerCA, o.controllerCA != "", "want the ConfigMap's name"},
		{"shared-pools", o.sharedPools, o.sharedPools != "", "want the ConfigMap's name"},
		{"node-service-account", o.nodeServiceAccount, o.nodeServiceAccount != "", "want the name of a ServiceAccount"},
		{
			"node-pods", o.nodePods, o.nodePods != "" && podsErr == nil,
			fmt.Sprintf("want a label selector (%v)", podsErr),
		},
		{"node-grace", o.nodeGrace.String(), o.nodeGrace > 0, "want a positive duration"},
		{"node-gone-after", o.nodeGoneAfter.String(), o.nodeGoneAfter > 0, "want a positive duration"},
		{"orphan-age", o.orphanAge.String(), o.orphanAge > 0, "want a positive duration"},
		{
			"certificate-interval", o.certificateInterval.String(), o.certificateInterval > 0,
			"want a positive duration",
		},
	}
}

func cleanPath(name string) bool { return filepath.IsAbs(name) && filepath.Clean(name) == name }

// pools reads the configuration file.
func (o *options) pools() ([]poolspec.Pool, error) {
	data, err := os.ReadFile(o.config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration (--config): %w", err)
	}
	config, err := poolspec.Parse(data)
	if err == nil {
		err = o.apart(config.StoragePools)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", o.config, err)
	}
	return config.StoragePools, nil
}

// apart keeps pools out of the directories that the driver and the kubelet need for themselves.
func (o *options) apart(pools []poolspec.Pool) error {
	var problems []error
	for i, p := range pools {
		other := poolspec.Clash(p.Path, poolspec.Directory{What: "--state-dir", Path: o.stateDir},
			poolspec.Directory{What: "--kubelet-dir", Path: o.kubeletDir})
		if other != "" {
			problems = append(problems, fmt.Errorf("storagePools[%d].path: %q and %s lie in one another; want "+
				"separate directories", i, p.Path, other))
		}
	}
	return errors.Join(problems...)
}
