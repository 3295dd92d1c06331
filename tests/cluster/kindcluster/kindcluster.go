// Package kindcluster makes, finds and removes the kind clusters that this
// repository's demos and tests run on. It is the one place that knows how; the
// command next to it, the end-to-end tests and the benchmarks all use it.
package kindcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"sigs.k8s.io/kind/pkg/cluster"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/preflight"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/registry"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// Options say what cluster is wanted.
type Options struct {
	// Name of the cluster; its containers start with it.
	Name string
	// Workers is the number of nodes beside the control plane.
	Workers int
	// MergeKubeconfig also writes access to the cluster where kubectl looks
	// for it ($KUBECONFIG or ~/.kube/config) and makes it the current
	// context, as kind does. Tests leave that alone.
	MergeKubeconfig bool
	// MoreSteps is how many steps the caller will print with the cluster's
	// Printer, so that the numbers are right from the first line on.
	MoreSteps int
	// Out gets the progress, in plain lines; nil discards it.
	Out io.Writer
}

// Cluster is a running kind cluster with a registry beside it.
type Cluster struct {
	name     string
	dir      cache.Dir
	steps    *progress.Printer
	provider *cluster.Provider
}

// createSteps is how many steps Create prints when nothing must be built.
const createSteps = 4

// Create makes the cluster, or takes the one of that name that is there:
// stopped nodes are started, and what a restart undoes is done again. The
// node image is pulled, or built from source where it cannot be, which takes
// a quarter of an hour on two cores once. The cluster is ready when Create
// returns: nodes Ready, name service and registry running.
func Create(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	dir, err := cache.Open()
	if err != nil {
		return nil, err
	}
	host := preflight.ThisHost(ctx)
	if err := preflight.Basic(host, string(dir)); err != nil {
		return nil, err
	}
	out := o.Out
	if out == nil {
		out = io.Discard
	}
	c := &Cluster{name: o.Name, dir: dir, steps: progress.New(out, createSteps+o.MoreSteps)}
	if err := c.prepareDocker(ctx); err != nil {
		return nil, err
	}
	existing, err := c.provider.ListNodes(o.Name)
	if err != nil {
		return nil, fmt.Errorf("list the nodes of cluster %s: %w", o.Name, err)
	}
	if len(existing) == 0 {
		if err := c.createNew(ctx, host, o); err != nil {
			return nil, err
		}
		return c, c.finish(ctx, o)
	}
	if err := c.adopt(ctx, o, len(existing)); err != nil {
		return nil, err
	}
	if err := c.finish(ctx, o); err != nil {
		return nil, fmt.Errorf("cluster %s is there but does not work; if making it was interrupted, remove it with "+
			"`go run ./cluster down --name %s`: %w",
			o.Name, o.Name, err)
	}
	return c, nil
}

func (o Options) validate() error {
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,40}$`).MatchString(o.Name) {
		return fmt.Errorf("cluster name %q: want lower case letters, digits and dashes, at most 41", o.Name)
	}
	if o.Workers < 0 || o.Workers > 16 {
		return fmt.Errorf("%d workers: want 0 to 16", o.Workers)
	}
	return nil
}

// Open returns the cluster of that name, which must be there. It prints nothing.
func Open(ctx context.Context, name string) (*Cluster, error) {
	c, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	nodes, err := c.provider.ListNodes(name)
	if err != nil {
		return nil, fmt.Errorf("list the nodes of cluster %s: %w", name, err)
	}
	if len(nodes) == 0 {
		missing := fmt.Errorf(
			"there is no cluster %s: make it with `go run ./cluster up --name %s` in the tests folder", name, name)
		return nil, errors.Join(missing, os.RemoveAll(c.folder()))
	}
	return c, nil
}

// open is Open for a cluster of which anything may be missing.
func open(ctx context.Context, name string) (*Cluster, error) {
	if err := (Options{Name: name}).validate(); err != nil {
		return nil, err
	}
	dir, err := cache.Open()
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: name, dir: dir, steps: progress.New(io.Discard, 0)}
	return c, c.prepareDocker(ctx)
}

// Name of the cluster.
func (c *Cluster) Name() string { return c.name }

// Printer numbers the steps of what is done with the cluster after Create.
func (c *Cluster) Printer() *progress.Printer { return c.steps }

// Kubeconfig is the path of a file with access to this cluster alone. It is
// removed with the cluster.
func (c *Cluster) Kubeconfig() string { return c.folder("kubeconfig") }

// folder holds what belongs to this cluster on this machine.
func (c *Cluster) folder(elem ...string) string {
	return c.dir.Path(append([]string{"clusters", c.name}, elem...)...)
}

func (c *Cluster) network() string { return "kind-" + c.name }

func (c *Cluster) createNew(ctx context.Context, host preflight.Host, o Options) error {
	if err := preflight.Watchers(host, 1+o.Workers); err != nil {
		return err
	}
	image, err := fromsource.NodeImage(ctx, c.dir, c.steps)
	if err != nil {
		return err
	}
	config := Config(o.Name, o.Workers, image.Config)
	if err := os.WriteFile(c.folder("kind.yaml"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("keep the cluster's configuration: %w", err)
	}
	what := fmt.Sprintf("kind cluster %s: 1 control plane, %d workers, %s", o.Name, o.Workers, image.Name)
	return c.steps.Step(what, 40*time.Second, func(report func(string)) error {
		return c.withKindEnv(image, func() error {
			provider := cluster.NewProvider(cluster.ProviderWithDocker(),
				cluster.ProviderWithLogger(&logger{report: report}))
			options := []cluster.CreateOption{
				cluster.CreateWithRawConfig([]byte(config)),
				cluster.CreateWithNodeImage(image.Name),
				cluster.CreateWithKubeconfigPath(c.Kubeconfig()),
			}
			if err := provider.Create(o.Name, options...); err != nil {
				return fmt.Errorf("make kind cluster %s: %w", o.Name, err)
			}
			return nil
		})
	})
}

// PrepareImage pulls the node image, or builds it where it cannot be pulled, and gives its name; it makes no cluster.
func PrepareImage(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
	if err := preflight.Basic(preflight.ThisHost(ctx), string(dir)); err != nil {
		return "", err
	}
	c := &Cluster{name: "image", dir: dir, steps: progress.New(out, 0)}
	if err := c.prepareDocker(ctx); err != nil {
		return "", err
	}
	image, err := fromsource.NodeImage(ctx, dir, c.steps)
	return image.Name, err
}

// adopt takes a cluster that is there, and starts its nodes if they are stopped.
func (c *Cluster) adopt(ctx context.Context, o Options, have int) error {
	if have != o.Workers+1 {
		return fmt.Errorf(
			"cluster %s has %d nodes and %d are wanted: remove it first with `go run ./cluster down --name %s`",
			o.Name, have, o.Workers+1, o.Name)
	}
	names, err := c.nodeNames()
	if err != nil {
		return err
	}
	err = c.steps.Step(fmt.Sprintf("kind cluster %s: it is there, updating it in place", o.Name), 0,
		func(func(string)) error {
			return dockercli.Run(ctx, append([]string{"start"}, names...)...)
		})
	if err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err == nil && fromsource.Outdated(nodes[0].Image) {
		c.steps.Note("Its nodes run an older image than new ones would: `down` and `up` replace them.")
	}
	return err
}

// finish brings everything that is needed beside kind's own work, and again
// after a restart of the nodes.
func (c *Cluster) finish(ctx context.Context, o Options) error {
	err := c.steps.Step("pod network", 0, func(func(string)) error { return c.ReapplyRoutes(ctx) })
	if err != nil {
		return err
	}
	err = c.steps.Step(
		"registry "+registry.Container(c.name), 0, func(func(string)) error { return c.ensureRegistry(ctx) },
	)
	if err != nil {
		return err
	}
	if err := c.writeKubeconfig(o.MergeKubeconfig); err != nil {
		return err
	}
	return c.steps.Step("wait for the nodes and the name service", 0, func(report func(string)) error {
		return c.WaitReady(ctx, 3*time.Minute, report)
	})
}

// CollectLogs writes what nodes, kubelets and all containers have logged to a folder.
func (c *Cluster) CollectLogs(folder string) error {
	if err := c.provider.CollectLogs(c.name, folder); err != nil {
		return fmt.Errorf("collect the logs of cluster %s in %s: %w", c.name, folder, err)
	}
	return nil
}

func (c *Cluster) ensureRegistry(ctx context.Context) error {
	if _, err := registry.Ensure(ctx, c.name, c.network()); err != nil {
		return err
	}
	names, err := c.nodeNames()
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range names {
		errs = append(errs, registry.TeachNode(ctx, c.name, node))
	}
	return errors.Join(errs...)
}

func (c *Cluster) writeKubeconfig(merge bool) error {
	paths := []string{c.Kubeconfig()}
	if merge {
		paths = append(paths, "") // where kubectl looks
	}
	for _, path := range paths {
		if err := c.provider.ExportKubeConfig(c.name, path, false); err != nil {
			return fmt.Errorf("write access to cluster %s: %w", c.name, err)
		}
	}
	return nil
}
