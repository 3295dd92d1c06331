package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// options are those of the driver.
type options struct {
	*endpoint.Options

	nodeName, hostRoot, kubeletDir, registrationDir, serviceAccount string
	registration, standalone                                        bool
	// How it finds the controller, and shows it which node this is.
	controller, controllerToken, daemonSet string
	// copyBytesPerSecond is 0 for as many as the disk gives.
	copyBytesPerSecond resource.QuantityValue
}

func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	flags.StringVar(&o.nodeName, "node-name", getenv("NODE_NAME"), "name of this node (environment: NODE_NAME)")
	flags.StringVar(&o.hostRoot, "host-root", "/host",
		"where the host's / is mounted; / when running on the host itself")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet",
		"the kubelet's directory, mounted at its own path")
	flags.BoolVar(&o.registration, "registration", true,
		"register with the kubelet; false where a registrar sidecar does")
	flags.StringVar(&o.registrationDir, "registration-dir", "",
		"where the kubelet looks for plugins (default <kubelet-dir>/plugins_registry)")
	flags.StringVar(&o.serviceAccount, "service-account", "/var/run/secrets/kubernetes.io/serviceaccount",
		"directory with token and ca.crt for the Kubernetes API")
	flags.BoolVar(&o.standalone, "standalone", false, "use no Kubernetes API at all, for tests")
	flags.StringVar(&o.controller, "controller", "",
		"host:port of the controller's Service, empty for no controller; the host is the name in its certificate")
	flags.StringVar(&o.controllerToken, "controller-token", "/var/run/secrets/hostpath-provisioner/token",
		"file with the token that shows the controller which node this is")
	flags.StringVar(&o.daemonSet, "daemon-set", "",
		"DaemonSet of this pod; the kubelet keeps the driver registered until that is gone")
	flags.Var(&o.copyBytesPerSecond, "copy-bytes-per-second",
		"the most that copies made file by file read on this node, such as 100Mi; 0 for as much as the disk gives")
}

func (o *options) check() error {
	var c command.Check
	o.Check(&c)
	const path = "want a clean absolute path"
	host, _, addressErr := net.SplitHostPort(o.controller)
	c.That(len(validation.IsDNS1123Subdomain(o.nodeName)) == 0, "--node-name", o.nodeName,
		"want the node's name in the cluster, or set NODE_NAME")
	c.That(command.IsPath(o.hostRoot), "--host-root", o.hostRoot, path)
	c.That(command.IsPath(o.kubeletDir) && o.kubeletDir != "/", "--kubelet-dir", o.kubeletDir, path+" other than /")
	c.That(command.IsPath(o.registrationDir), "--registration-dir", o.registrationDir, path)
	c.That(o.standalone || o.PodNamespace != "", "--pod-namespace", "",
		"want the driver's namespace, or set POD_NAMESPACE, or --standalone without a cluster")
	c.That(o.controller == "" || addressErr == nil && host != "" && !o.standalone, "--controller", o.controller,
		"want host:port without --standalone, or nothing")
	c.That(o.controller == "" || o.ControllerCA != "", "--controller-ca", o.ControllerCA, "want the ConfigMap's name")
	c.That(o.copyBytesPerSecond.Sign() >= 0, "--copy-bytes-per-second", o.copyBytesPerSecond.String(),
		"want 0 or more")
	c.That(o.daemonSet == "" || !o.standalone, "--daemon-set", o.daemonSet, "want this or --standalone")
	return c.Err()
}

// serve serves a node until ctx ends.
func (o *options) serve(ctx context.Context, stderr io.Writer) error {
	o.registrationDir = cmp.Or(o.registrationDir, filepath.Join(o.kubeletDir, "plugins_registry"))
	if err := o.check(); err != nil {
		return err
	}
	specs, err := o.Pools(poolspec.Directory{What: "--state-dir", Path: o.StateDir},
		poolspec.Directory{What: "--kubelet-dir", Path: o.kubeletDir})
	if err != nil {
		return err
	}
	if err := o.checkMemory(specs); err != nil {
		return err
	}
	return endpoint.Run(ctx, o.Options, stderr, func(ctx context.Context, p *endpoint.Process) error {
		// Before anything is built: building reads what is published on this node, which must not change under it.
		unlock, err := process.Lock(o.StateDir)
		if err != nil {
			return err
		}
		p.OnClose(unlock)
		p.Log.InfoContext(ctx, "starting the driver", logging.KeyVersion, buildinfo.Version(),
			logging.KeyNode, o.nodeName, logging.KeyPools, len(specs))
		return (&driver{options: o, Process: p}).build(ctx, specs)
	})
}

// checkMemory refuses a state directory that a boot empties, where a pool's path may be without its disk then: the node
// would not know that it had one there.
func (o *options) checkMemory(specs []poolspec.Pool) error {
	facts, err := disk.NewHost("/").Inspect(o.StateDir)
	if err != nil {
		return fmt.Errorf("look at --state-dir: %w", err)
	}
	for _, spec := range specs {
		if facts.InMemory() && !spec.MountRequired() {
			return fmt.Errorf("--state-dir: %s is on a %s, which a boot empties, and the node would take an empty "+
				"directory for pool %s whose disk is not mounted: name a directory on a disk, or set requireMount for "+
				"every pool", o.StateDir, facts.FSType, spec.Name)
		}
	}
	return nil
}
