package endpoint

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/servingtls"
)

// Options are those that both processes have.
type Options struct {
	// Endpoint is the CSI socket, unix:///absolute/path.
	Endpoint, DriverName, TopologyKey string
	// Config is the file with the pools. StateDir has the socket of the commands, and on a node what it remembers.
	Config, StateDir, PodName, PodNamespace string
	// ControllerCA is the ConfigMap with the authorities that nodes trust.
	ControllerCA                   string
	HTTPAddress, MetricsTLSAddress string
	MetricsTLS                     servingtls.Options
	LogLevel, LogFormat            string
}

// AddFlags adds all but --state-dir, which the clients of a running process have too. The chart and the documentation
// name the defaults as well.
func (o *Options) AddFlags(flags *pflag.FlagSet, getenv func(string) string) {
	flags.StringVar(&o.Endpoint, "endpoint", "unix:///var/lib/kubelet/plugins/"+names.Driver+"/csi.sock",
		"the CSI socket, as unix:///path; the kubelet must see it at the same path")
	flags.StringVar(&o.DriverName, "driver-name", names.Driver, "name of the CSI driver")
	flags.StringVar(&o.TopologyKey, "topology-key", "topology.hostpath.csi/node",
		"topology segment that names a volume's node")
	flags.StringVar(&o.Config, "config", "/etc/hostpath-provisioner/config.yaml", "file with the storage pools")
	flags.StringVar(&o.HTTPAddress, "http-address", ":9898",
		"address of /healthz, /readyz and /metrics; empty for none")
	flags.StringVar(&o.MetricsTLSAddress, "metrics-tls-address", "",
		"address of /metrics over TLS, which --http-address then does not have; empty for none")
	flags.StringVar(&o.MetricsTLS.CertDir, "metrics-tls-cert-dir", "",
		"directory with tls.crt and tls.key, read again when they change")
	flags.StringVar(&o.MetricsTLS.MinVersion, "metrics-tls-min-version", "", "least TLS version (default VersionTLS12)")
	flags.StringSliceVar(&o.MetricsTLS.CipherSuites, "metrics-tls-cipher-suites", nil,
		"suites of TLS 1.2 and older by their IANA names (default those of Mozilla's intermediate profile)")
	flags.StringVar(&o.PodName, "pod-name", getenv("POD_NAME"), "name of this pod (environment: POD_NAME)")
	flags.StringVar(&o.PodNamespace, "pod-namespace", getenv("POD_NAMESPACE"), "its namespace (or POD_NAMESPACE)")
	flags.StringVar(&o.ControllerCA, "controller-ca", "",
		"ConfigMap of this namespace with the authorities of the controller's certificate")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.LogFormat, "log-format", "json", "json or text")
}

// Check says what is wrong with them.
func (o *Options) Check(c *command.Check) {
	const address = "want host:port, :port or nothing"
	_, endpointErr := rpc.SocketPath(o.Endpoint)
	_, versionErr := servingtls.Version(o.MetricsTLS.MinVersion)
	_, suitesErr := servingtls.Suites(o.MetricsTLS.CipherSuites)
	isAddress := func(s string) bool { return s == "" || command.IsAddress(s) }
	isName := len(o.DriverName) <= 63 && len(validation.IsDNS1123Subdomain(o.DriverName)) == 0
	c.That(endpointErr == nil, "--endpoint", o.Endpoint, "want unix:///absolute/path")
	c.That(isName, "--driver-name", o.DriverName, "want a DNS name of at most 63 of a-z, 0-9, - and .")
	c.That(len(validation.IsQualifiedName(o.TopologyKey)) == 0, "--topology-key", o.TopologyKey, "want a label key")
	c.That(o.Config != "", "--config", o.Config, "want the path of a file")
	c.That(command.IsPath(o.StateDir) && o.StateDir != "/", "--state-dir", o.StateDir,
		"want a clean absolute path other than /")
	c.That(isAddress(o.HTTPAddress), "--http-address", o.HTTPAddress, address)
	c.That(isAddress(o.MetricsTLSAddress), "--metrics-tls-address", o.MetricsTLSAddress, address)
	c.That((o.MetricsTLSAddress == "") == (o.MetricsTLS.CertDir == ""), "--metrics-tls-cert-dir", o.MetricsTLS.CertDir,
		"want it with --metrics-tls-address, or neither")
	c.That(versionErr == nil, "--metrics-tls-min-version", nil, fmt.Sprint(versionErr))
	c.That(suitesErr == nil, "--metrics-tls-cipher-suites", nil, fmt.Sprint(suitesErr))
	c.Log(o.LogLevel, o.LogFormat)
}

// Pools reads the configuration file. No pool may lie in any of the other directories, nor contain one.
func (o *Options) Pools(others ...poolspec.Directory) ([]poolspec.Pool, error) {
	data, err := os.ReadFile(o.Config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration (--config): %w", err)
	}
	config, err := poolspec.Parse(data)
	if err == nil {
		err = apart(config.StoragePools, others)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", o.Config, err)
	}
	return config.StoragePools, nil
}

func apart(pools []poolspec.Pool, others []poolspec.Directory) error {
	var problems []error
	for i, p := range pools {
		if other := poolspec.Clash(p.Path, others...); other != "" {
			problems = append(problems, fmt.Errorf("storagePools[%d].path: %q and %s lie in one another; want "+
				"separate directories", i, p.Path, other))
		}
	}
	return errors.Join(problems...)
}
