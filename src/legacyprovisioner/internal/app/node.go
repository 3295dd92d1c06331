package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpath"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/placement"
)

const modeNode = "node"

// Values of PV_CAPACITY.
const (
	capacityRequested  = "requested"
	capacityFilesystem = "filesystem"
)

// nodeDirectoryMode is what the kubelet gives a hostPath that it makes.
const nodeDirectoryMode = 0o755

// nodeMode is one instance on each node, as kubevirt's legacy provisioner works.
func nodeMode() mode {
	return mode{
		about: "legacyprovisioner makes hostPath PersistentVolumes of directories on the node it runs on.",
		environment: "  PV_DIR             directory of the volumes, the same path here and on the host\n" +
			"  NODE_NAME          name of this node in the cluster\n" +
			"  USE_NAMING_PREFIX  true: directories are called <claim>-<volume>; false (default): <volume>\n" +
			"  PV_CAPACITY        requested (default): a volume says its claim's size; filesystem: its filesystem's\n",
		httpAddress: ":9896",
		settings:    &nodeOptions{},
	}
}

// nodeOptions are PV_DIR, NODE_NAME, USE_NAMING_PREFIX and PV_CAPACITY, which kubevirt's provisioner reads from the
// environment too (but for the last, which is ours).
type nodeOptions struct {
	guarded
	directory, node, namingPrefix, capacity string
}

func (n *nodeOptions) define(flags *flag.FlagSet, getenv func(string) string) {
	n.guarded.define(flags, false)
	n.node = getenv("NODE_NAME")
	if directory := getenv("PV_DIR"); directory != "" {
		n.directory = filepath.Clean(directory)
	}
	n.namingPrefix = strings.ToLower(cmp.Or(getenv("USE_NAMING_PREFIX"), "false"))
	n.capacity = cmp.Or(getenv("PV_CAPACITY"), capacityRequested)
}

func (n *nodeOptions) check(c *command.Check, o options) {
	n.guarded.check(c, o.kubeconfig == "")
	c.That(filepath.IsAbs(n.directory) && n.directory != "/", "PV_DIR", n.directory,
		"want the absolute path of a directory for the volumes, such as /var/hpvolumes")
	c.That(len(validation.IsDNS1123Subdomain(n.node)) == 0, "NODE_NAME", n.node, "want the node's name in the cluster")
	c.That(n.namingPrefix == "true" || n.namingPrefix == "false", "USE_NAMING_PREFIX", n.namingPrefix,
		"want true or false")
	c.That(n.capacity == capacityRequested || n.capacity == capacityFilesystem, "PV_CAPACITY", n.capacity,
		"want "+capacityRequested+" or "+capacityFilesystem)
}

func (n *nodeOptions) serve(ctx context.Context, o options, log *slog.Logger) error {
	// On a node that the kubelet has prepared it is there. It is never made again: what vanishes later is a disk.
	if err := os.MkdirAll(n.directory, nodeDirectoryMode); err != nil {
		return fmt.Errorf("make the directory of the volumes (PV_DIR): %w", err)
	}
	client, err := connect("", o.kubeconfig)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "starting the legacy provisioner", logging.KeyVersion, buildinfo.Version(), logging.KeyNode,
		n.node, logging.KeyPath, n.directory)
	p, err := n.build(ctx, o, client, log)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// build puts this mode's provisioner together.
func (n *nodeOptions) build(
	ctx context.Context, o options, client kubernetes.Interface, log *slog.Logger,
) (*provisioner, error) {
	guard, err := n.guard()
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTransform(withoutManagedFields))
	backend, err := hostpath.New(hostpath.Config{
		Client: client, Classes: factory.Storage().V1().StorageClasses().Lister(),
		Volumes: factory.Core().V1().PersistentVolumes().Lister(), Node: n.node, Directory: n.directory,
		NamingPrefix: n.namingPrefix == "true", WholeFilesystem: n.capacity == capacityFilesystem, Guard: guard,
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	watcher, err := placement.New(placement.Config{
		Client: client, Informers: factory, Node: n.node, NoticeDelay: noticeDelay, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return build(ctx, parts{
		name: names.LegacyProvisioner, client: client, informers: factory, backend: backend, beside: watcher.Run,
		live:  func() error { return current(guard, n.directory) },
		ready: func() error { return directoryIsThere(n.directory) }, httpAddress: o.httpAddress, log: log,
	})
}

func directoryIsThere(path string) error {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return fmt.Errorf("open the directory of the volumes: %w", err)
	}
	return dir.Close()
}
