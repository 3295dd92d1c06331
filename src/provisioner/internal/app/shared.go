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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/provisioner/internal/shared"
)

const modeShared = "shared"

// sharedMode is one instance for all nodes, as torchbox's provisioner works.
func sharedMode() mode {
	return mode{
		about: "provisioner --mode=shared makes hostPath PersistentVolumes of directories on storage that all nodes have " +
			"mounted at\none path. The directory is the parameter pvDir of a StorageClass.",
		settings: &sharedOptions{},
	}
}

// sharedOptions are torchbox's flags, and ours.
type sharedOptions struct {
	guarded

	name, id, master, path string
	// election is nil where nothing was said: then it depends on where the process runs.
	election          *bool
	electionNamespace string
}

func (s *sharedOptions) define(flags *flag.FlagSet, _ func(string) string) {
	s.name, s.id = names.SharedProvisioner, names.SharedProvisioner
	flags.Func("name", "the provisioner's name in StorageClasses (default "+s.name+")", unlessEmpty(&s.name))
	flags.Func("id", "identity on its PersistentVolumes: only those that have it are deleted (default "+s.id+")",
		unlessEmpty(&s.id))
	flags.StringVar(&s.master, "master", "", "URL of the Kubernetes API, instead of or beside -kubeconfig")
	flags.StringVar(&s.path, "path", "/",
		"where the storage, or a directory of it, is mounted: pvDir lies there or below, and below it no link is followed")
	s.guarded.define(flags, true)
	flags.BoolFunc("leader-election",
		"let one of several instances with this name and identity work (default: true in a pod, false outside)",
		func(value string) error {
			on, err := strconv.ParseBool(value)
			s.election = &on
			return err
		})
	flags.StringVar(&s.electionNamespace, "leader-election-namespace", "",
		"namespace of the Lease (default: that of the pod; outside of one, default)")
}

func (s *sharedOptions) check(c *command.Check, o options) {
	c.That(len(validation.IsQualifiedName(strings.ToLower(s.name))) == 0, "-name", s.name,
		"want a name such as "+names.SharedProvisioner)
	c.That(command.IsPath(s.path), "-path", s.path, "want the clean absolute path of a directory, such as /ceph")
	s.guarded.check(c, s.inPod(o))
}

// unlessEmpty sets a flag's value; an empty one means the default, as with torchbox's provisioner.
func unlessEmpty(to *string) func(string) error {
	return func(value string) error {
		*to = cmp.Or(value, *to)
		return nil
	}
}

// inPod reports whether the process has its access to the cluster from the pod that it is in.
func (s *sharedOptions) inPod(o options) bool { return o.kubeconfig == "" && s.master == "" }

func (s *sharedOptions) serve(ctx context.Context, o options, log *slog.Logger) error {
	client, err := connect(s.master, o.kubeconfig)
	if err != nil {
		return err
	}
	p, err := s.build(ctx, o, client, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "starting the provisioner of shared volumes", logging.KeyVersion, buildinfo.Version(),
		logging.KeyProvisioner, s.name, logging.KeyID, s.id)
	return p.run(ctx)
}

// build puts this mode's provisioner together.
func (s *sharedOptions) build(
	ctx context.Context, o options, client kubernetes.Interface, log *slog.Logger,
) (*provisioner, error) {
	guard, err := s.guard()
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(withoutManagedFields))
	backend, err := shared.New(shared.Config{
		Client: client, Classes: factory.Storage().V1().StorageClasses().Lister(),
		Volumes: factory.Core().V1().PersistentVolumes().Lister(), Name: s.name, ID: s.id,
		Path: s.path, Guard: guard, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return build(ctx, parts{
		name: s.name, client: client, informers: factory, backend: backend, live: backend.Current, lease: s.lease(o),
		httpAddress: o.httpAddress, log: log,
	})
}

// lease is that of the instances with this name and identity; nil where there is no election.
func (s *sharedOptions) lease(o options) *lease {
	wanted := s.inPod(o)
	if s.election != nil {
		wanted = *s.election
	}
	if !wanted {
		return nil
	}
	name := s.name
	if s.id != names.SharedProvisioner {
		name += "-" + s.id
	}
	return &lease{namespace: cmp.Or(s.electionNamespace, podNamespace(), metav1.NamespaceDefault), name: leaseName(name)}
}
