package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/inventory"
)

// topologyKey is the driver's label of nodes where no controller says another one.
const topologyKey = "topology.hostpath.csi/node"

// asking is what of the controller's answers a command is about.
type asking struct{ status, volumes, deleted bool }

// ask gives what Kubernetes and the controller say. What Kubernetes does not let the user read, and a controller that
// cannot be asked, are noted; but for the trash, of which Kubernetes knows nothing.
func (p *plugin) ask(
	ctx context.Context, namespace string, what asking,
) (s cluster.State, a inventory.Answers, err error) {
	controller, unasked := p.controller(ctx)
	if what.deleted && !what.status {
		if unasked == nil {
			err = controller.Ask(ctx, &a.Deleted, "volume", "list", "--deleted")
		}
		return s, a, errors.Join(unasked, err)
	}
	at := cluster.Controller{Namespace: p.driverNamespace}
	if unasked == nil {
		at = controller.At
	}
	at.Driver = cmp.Or(at.Driver, p.driver, names.Driver)
	at.TopologyKey = cmp.Or(at.TopologyKey, topologyKey)
	api, err := p.api()
	if err != nil {
		return s, a, err
	}
	var asked sync.WaitGroup
	problems := make([]error, 3)
	put := func(i int, wanted bool, answer any, args ...string) {
		if wanted && unasked == nil {
			asked.Go(func() { problems[i] = controller.Ask(ctx, answer, args...) })
		}
	}
	put(0, what.status, &a.Status, "status")
	put(1, what.volumes, &a.Volumes, "volume", "list")
	put(2, what.deleted, &a.Deleted, "volume", "list", "--deleted")
	s, err = cluster.Read(ctx, api, at, namespace)
	asked.Wait()
	for _, missing := range s.Missing {
		p.note(missing)
	}
	if why := cmp.Or(unasked, problems[0], problems[1], problems[2]); why != nil {
		p.note(fmt.Sprintf("what only the controller knows is missing: %v", why))
	}
	if unasked != nil && p.driver == "" {
		p.note(fmt.Sprintf("the driver is taken to be %s; say another one with --driver", at.Driver))
	}
	// An answer that was cut off is none.
	if problems[0] != nil {
		a.Status = nil
	}
	if problems[1] != nil {
		a.Volumes = nil
	}
	if problems[2] != nil {
		a.Deleted = nil
	}
	return s, a, err
}

// note says something beside what was asked for.
func (p *plugin) note(text string) { _, _ = fmt.Fprintf(p.ErrOut, "note: %s\n", text) }

// complete gives names for a shell.
func (p *plugin) complete(
	c *cobra.Command, list func(context.Context, kubernetes.Interface, string) ([]string, error), namespace string,
) ([]string, cobra.ShellCompDirective) {
	api, err := p.api()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	found, err := list(c.Context(), api, namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
