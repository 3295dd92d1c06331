package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/servingtls"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Defaults that the chart and the documentation name as well.
const (
	defaultDriverName  = "kubevirt.io.hostpath-provisioner"
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
}

func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	flags.StringVar(&o.endpoint, "endpoint", "unix://"+defaultKubeletDir+"/plugins/"+defaultDriverName+"/csi.sock",
		"the CSI socket, as unix:///path; the kubelet must see it at the same path")
	flags.StringVar(&o.driverName, "driver-name", defaultDriverName, "name of the CSI driver")
	flags.StringVar(&o.topologyKey, "topology-key", defaultTopologyKey, "topology segment that names a volume's node")
	flags.StringVar(&o.nodeName, "node-name", getenv("NODE_NAME"), "name of this node (environment: NODE_NAME)")
	flags.StringVar(&o.config, "config", "/etc/hostpath-provisioner/config.yaml", "file with the storage pools")
	flags.StringVar(&o.hostRoot, "host-root", "/host", "where the host's / is mounted; / when running on the host itself")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", defaultKubeletDir, "the kubelet's directory, mounted at its own path")
	flags.BoolVar(&o.registration, "registration", true, "register with the kubelet; false where a registrar sidecar does")
	flags.StringVar(&o.registrationDir, "registration-dir", "",
		"where the kubelet looks for plugins (default <kubelet-dir>/plugins_registry)")
	flags.StringVar(&o.httpAddress, "http-address", ":9898", "address of /healthz, /readyz and /metrics; empty for none")
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
		"node: serve the pools of this node; controller: tell csi-resizer which volumes may grow, once in a cluster")
	flags.StringVar(&o.podNamespace, "pod-namespace", getenv("POD_NAMESPACE"), "its namespace (or POD_NAMESPACE)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
	flags.BoolVar(&o.standalone, "standalone", false, "use no Kubernetes API at all, for tests")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
}

// complete fills in what follows from other options.
func (o *options) complete() {
	if o.registrationDir == "" {
		o.registrationDir = filepath.Join(o.kubeletDir, "plugins_registry")
	}
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
	for _, rule := range []struct {
		flag, value string
		met         bool
		want        string
	}{
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
			"report-pools", o.podNamespace + "/" + o.podName, !o.reportPools || (o.podName != "" && o.podNamespace != ""),
			"want --pod-name and --pod-namespace, or POD_NAME and POD_NAMESPACE",
		},
		{
			"mode", o.mode, o.mode == modeNode || (o.mode == modeController && !o.standalone),
			"want " + modeNode + ", or without --standalone " + modeController,
		},
		{"kubeconfig", o.kubeconfig, o.kubeconfig == "" || !o.standalone, "want this or --standalone"},
		{"log-level or --log-format", o.logLevel + ", " + o.logFormat, logErr == nil, fmt.Sprint(logErr)},
	} {
		if !rule.met {
			err = errors.Join(err, fmt.Errorf("--%s: %q: %s", rule.flag, rule.value, rule.want))
		}
	}
	return err
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
		err = config.Supported()
	}
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
		if poolspec.Within(p.Path, o.stateDir) || poolspec.Within(o.stateDir, p.Path) {
			problems = append(problems, fmt.Errorf("storagePools[%d].path: %q and --state-dir %s lie in one another; want "+
				"separate directories", i, p.Path, o.stateDir))
		}
		if poolspec.Within(p.Path, o.kubeletDir) {
			problems = append(problems, fmt.Errorf("storagePools[%d].path: %q lies in --kubelet-dir %s; want a directory of "+
				"its own", i, p.Path, o.kubeletDir))
		}
	}
	return errors.Join(problems...)
}
