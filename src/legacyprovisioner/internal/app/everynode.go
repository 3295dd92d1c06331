package app

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode"
)

const modeEveryNode = "everyNode"

// everyNodeRetry is the longest pause before a node that was away is asked again.
const everyNodeRetry = 30 * time.Second

// longestSuffix is the longest that is added to the provisioner's name for an annotation.
const longestSuffix = "-reuse-policy"

// everyNodeMode is one instance for the cluster that asks the managers on the nodes, as kubeboost's provisioner works.
func everyNodeMode() mode {
	return mode{
		about: "legacyprovisioner --mode=everyNode makes hostPath PersistentVolumes with a directory on every node; " +
			"the managers there\nmake it.",
		environment: "  POD_NAMESPACE  where provisioner and managers run\n",
		httpAddress: ":9896",
		settings:    &everyNodeOptions{},
	}
}

// together are the options that provisioner and managers share.
type together struct{ name, path, namespace, managers string }

func (s *together) define(flags *flag.FlagSet, getenv func(string) string) {
	flags.StringVar(&s.name, "name", names.EveryNodeProvisioner, "name of the provisioner in StorageClasses")
	flags.StringVar(&s.path, "path", "/var/kubernetes", "directory of the volumes on every node")
	flags.StringVar(&s.managers, "managers", names.EveryNodeManager,
		"name of the managers' DaemonSet, of the ConfigMap with the nodes that have had one, and of the "+
			"provisioner's Lease")
	s.namespace = getenv("POD_NAMESPACE")
}

func (s *together) check(c *command.Check, _ options) {
	_, part, _ := strings.Cut(s.name, "/")
	c.That(len(validation.IsQualifiedName(s.name+longestSuffix)) == 0, "--name", s.name,
		fmt.Sprintf("want a name such as %s, of which the part after the slash has at most %d characters",
			names.EveryNodeProvisioner, validation.LabelValueMaxLength-len(longestSuffix)))
	c.That(part != "", "--name", s.name, "want a slash in it")
	c.That(command.IsPath(s.path) && s.path != "/", "--path", s.path,
		"want the clean absolute path of a directory for the volumes, such as /var/kubernetes")
	c.That(len(validation.IsDNS1123Subdomain(s.managers)) == 0, "--managers", s.managers,
		"want the name of the managers' DaemonSet")
	c.That(len(validation.IsDNS1123Label(s.namespace)) == 0, "POD_NAMESPACE", s.namespace,
		"want the namespace of provisioner and managers")
}

// everyNodeOptions are those of the provisioner.
type everyNodeOptions struct {
	together
	tokenFile     string
	nodeGoneAfter time.Duration
}

func (e *everyNodeOptions) define(flags *flag.FlagSet, getenv func(string) string) {
	e.together.define(flags, getenv)
	flags.StringVar(&e.tokenFile, "token-file", "/var/run/secrets/hostpath-provisioner/token",
		"file with the token for the managers")
	flags.DurationVar(&e.nodeGoneAfter, "node-gone-after", 10*time.Minute,
		"how long there is to be no Node object before the volumes of a node are given up")
}

func (e *everyNodeOptions) check(c *command.Check, o options) {
	e.together.check(c, o)
	c.That(filepath.IsAbs(e.tokenFile), "--token-file", e.tokenFile, "want an absolute path")
	c.That(e.nodeGoneAfter > 0, "--node-gone-after", e.nodeGoneAfter, "want more than 0")
}

func (e *everyNodeOptions) serve(ctx context.Context, o options, log *slog.Logger) error {
	client, err := connect("", o.kubeconfig)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "starting the provisioner for every node", logging.KeyVersion, buildinfo.Version(),
		logging.KeyPath, e.path)
	p, err := e.build(ctx, o, client, log)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// build puts this mode's provisioner together.
func (e *everyNodeOptions) build(
	ctx context.Context, o options, client kubernetes.Interface, log *slog.Logger,
) (*provisioner, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTransform(withoutManagedFields))
	backend, err := everynode.New(everynode.Config{
		Client: client, Volumes: factory.Core().V1().PersistentVolumes().Informer(), Provisioner: e.name, Base: e.path,
		Namespace: e.namespace, Managers: e.managers, Port: names.EveryNodePort, TokenFile: e.tokenFile,
		GoneAfter: e.nodeGoneAfter, Recorder: recorder(ctx, client, e.name), Log: log,
	})
	if err != nil {
		return nil, err
	}
	return build(ctx, parts{
		name: e.name, client: client, informers: factory, backend: backend,
		beside: func(ctx context.Context) error { backend.Run(ctx); return nil },
		lease:  &lease{namespace: e.namespace, name: e.managers},
		own: []func(*controller.ProvisionController) error{
			controller.AddFinalizer(true),
			controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry,
				everyNodeRetry)),
		},
		httpAddress: o.httpAddress, log: log,
	})
}

// recorder makes events in the name of a provisioner.
func recorder(ctx context.Context, client kubernetes.Interface, component string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}
