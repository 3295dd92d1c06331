package app

import (
	"cmp"
	"context"
	"flag"
	"log/slog"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/networkfs"
)

const modeNetworkFS = "shared"

// networkFSMode is one instance for all nodes, as torchbox's provisioner works.
func networkFSMode() mode {
	return mode{
		about: "legacyprovisioner --mode=shared makes hostPath PersistentVolumes of directories on storage that all " +
			"nodes have mounted at\none path. The directory is the parameter pvDir of a StorageClass.",
		settings: &networkFSOptions{},
	}
}

// networkFSOptions are torchbox's flags, and ours.
type networkFSOptions struct {
	guarded

	name, id, master, path string
	// election is nil where nothing was said: then it depends on where the process runs.
	election          *bool
	electionNamespace string
}

func (n *networkFSOptions) define(flags *flag.FlagSet, _ func(string) string) {
	n.name, n.id = names.NetworkFSProvisioner, names.NetworkFSProvisioner
	flags.Func("name", "the provisioner's name in StorageClasses (default "+n.name+")", unlessEmpty(&n.name))
	flags.Func("id", "identity on its PersistentVolumes: only those that have it are deleted (default "+n.id+")",
		unlessEmpty(&n.id))
	flags.StringVar(&n.master, "master", "", "URL of the Kubernetes API, instead of or beside -kubeconfig")
	flags.StringVar(&n.path, "path", "/",
		"where the storage, or a directory of it, is mounted: pvDir lies there or below, and below it no "+
			"link is followed")
	n.guarded.define(flags, true)
	flags.BoolFunc("leader-election",
		"let one of several instances with this name and identity work (default: true in a pod, false outside)",
		func(value string) error {
			on, err := strconv.ParseBool(value)
			n.election = &on
			return err
		})
	flags.StringVar(&n.electionNamespace, "leader-election-namespace", "",
		"namespace of the Lease (default: that of the pod; outside of one, default)")
}

func (n *networkFSOptions) check(c *command.Check, o options) {
	c.That(len(validation.IsQualifiedName(strings.ToLower(n.name))) == 0, "-name", n.name,
		"want a name such as "+names.NetworkFSProvisioner)
	c.That(command.IsPath(n.path), "-path", n.path, "want the clean absolute path of a directory, such as /ceph")
	n.guarded.check(c, n.inPod(o))
}

// unlessEmpty sets a flag's value; an empty one means the default, as with torchbox's provisioner.
func unlessEmpty(to *string) func(string) error {
	return func(value string) error {
		*to = cmp.Or(value, *to)
		return nil
	}
}

// inPod reports whether the process has its access to the cluster from the pod that it is in.
func (n *networkFSOptions) inPod(o options) bool { return o.kubeconfig == "" && n.master == "" }

func (n *networkFSOptions) serve(ctx context.Context, o options, log *slog.Logger) error {
	client, err := connect(n.master, o.kubeconfig)
	if err != nil {
		return err
	}
	p, err := n.build(ctx, o, client, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "starting the provisioner for a network filesystem", logging.KeyVersion, buildinfo.Version(),
		logging.KeyProvisioner, n.name, logging.KeyID, n.id)
	return p.run(ctx)
}

// build puts this mode's provisioner together.
func (n *networkFSOptions) build(
	ctx context.Context, o options, client kubernetes.Interface, log *slog.Logger,
) (*provisioner, error) {
	guard, err := n.guard()
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTransform(withoutManagedFields))
	backend, err := networkfs.New(networkfs.Config{
		Client: client, Classes: factory.Storage().V1().StorageClasses().Lister(),
		Volumes: factory.Core().V1().PersistentVolumes().Lister(), Name: n.name, ID: n.id,
		Path: n.path, Guard: guard, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return build(ctx, parts{
		name: n.name, client: client, informers: factory, backend: backend, live: backend.Current, lease: n.lease(o),
		httpAddress: o.httpAddress, log: log,
	})
}

// lease is that of the instances with this name and identity; nil where there is no election.
func (n *networkFSOptions) lease(o options) *lease {
	wanted := n.inPod(o)
	if n.election != nil {
		wanted = *n.election
	}
	if !wanted {
		return nil
	}
	name := n.name
	if n.id != names.NetworkFSProvisioner {
		name += "-" + n.id
	}
	return &lease{
		namespace: cmp.Or(n.electionNamespace, podNamespace(), metav1.NamespaceDefault), name: leaseName(name),
	}
}
