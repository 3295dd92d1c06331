package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/manager"
)

const modeEveryNodeManager = "everyNodeManager"

// everyNodeManagerMode is one instance on each node, which makes and removes its directories.
func everyNodeManagerMode() mode {
	return mode{
		about: "legacyprovisioner --mode=everyNodeManager makes and removes, on the node it runs on, the directories " +
			"of volumes\nthat are on every node.",
		environment: "  POD_NAMESPACE  where provisioner and managers run\n" +
			"  NODE_NAME      name of this node in the cluster\n",
		httpAddress: ":9896",
		settings:    &everyNodeManagerOptions{},
	}
}

// everyNodeManagerOptions are those of a manager.
type everyNodeManagerOptions struct {
	together
	guarded
	node, account, listen string
}

func (m *everyNodeManagerOptions) define(flags *flag.FlagSet, getenv func(string) string) {
	m.together.define(flags, getenv)
	m.guarded.define(flags, false)
	flags.StringVar(&m.account, "provisioner-account", "",
		"ServiceAccount of the provisioner, the only one that is listened to")
	flags.StringVar(&m.listen, "listen", ":"+names.EveryNodePort, "address for the provisioner")
	m.node = getenv("NODE_NAME")
}

func (m *everyNodeManagerOptions) check(c *command.Check, o options) {
	m.together.check(c, o)
	m.guarded.check(c, o.kubeconfig == "")
	c.That(len(validation.IsDNS1123Subdomain(m.account)) == 0, "--provisioner-account", m.account,
		"want the name of the provisioner's ServiceAccount")
	c.That(command.IsAddress(m.listen), "--listen", m.listen, "want host:port or :port")
	c.That(len(validation.IsDNS1123Subdomain(m.node)) == 0, "NODE_NAME", m.node, "want the node's name in the cluster")
}

func (m *everyNodeManagerOptions) serve(ctx context.Context, o options, log *slog.Logger) error {
	client, err := connect("", o.kubeconfig)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "starting the manager for every node", logging.KeyVersion, buildinfo.Version(),
		logging.KeyNode, m.node, logging.KeyPath, m.path)
	return m.run(ctx, o, client, log)
}

// run works until ctx ends or a server fails.
func (m *everyNodeManagerOptions) run(
	ctx context.Context, o options, client kubernetes.Interface, log *slog.Logger,
) error {
	guard, err := m.guard()
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTransform(withoutManagedFields))
	backend, err := manager.New(manager.Config{
		Client: client, Volumes: factory.Core().V1().PersistentVolumes().Informer(), Node: m.node, Base: m.path,
		Provisioner: m.name, Namespace: m.namespace, Account: m.account, Registry: m.managers, Guard: guard,
		Recorder: recorder(ctx, client, m.name), Log: log,
	})
	if err != nil {
		return err
	}
	var parts process.Group
	if err := addProbes(ctx, &parts, health.Config{
		Address: o.httpAddress, Log: log,
		Live:  health.Check{Name: "manager", Do: func(context.Context) error { return current(guard, m.path) }},
		Ready: []health.Check{{Name: "directories", Do: backend.Ready}},
	}); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", m.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("--listen: %w", err), parts.Close())
	}
	addInformers(&parts, factory)
	parts.AddListener("directories", listener, backend.Run)
	err = parts.Run(ctx)
	log.InfoContext(ctx, "the manager for every node has stopped")
	return err
}
