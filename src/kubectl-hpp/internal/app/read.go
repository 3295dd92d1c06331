package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
)

// topologyKey is the driver's label of nodes where no controller says another one.
const topologyKey = "topology.hostpath.csi/node"

// What the controller is asked.
const (
	askStatus  = "status"
	askVolumes = "volume list"
	askTrash   = "volume list --deleted"
)

// unasked begins what is said where the controller does not answer.
const unasked = "what only the controller knows was not read: "

// read reads what Kubernetes says of a namespace, or with "" of all, and what the controller answers to questions. That
// either is not to be had is no error, but said in the facts: what the user may not read or ask, or the controller
// refuses, is missing; where there is no controller, or none that answers, it is away.
func (p *plugin) read(ctx context.Context, namespace string, questions ...string) (f facts.Facts, err error) {
	api, err := p.api()
	if err != nil {
		return f, err
	}
	controller, away := p.controller(ctx)
	at := cluster.Controller{Namespace: p.driverNamespace}
	if away == nil {
		at = controller.At
	} else if p.driver == "" {
		p.note(fmt.Sprintf("the driver is taken to be %s; say another one with --driver", names.Driver))
	}
	at.Driver = cmp.Or(at.Driver, p.driver, names.Driver)
	at.TopologyKey = cmp.Or(at.TopologyKey, topologyKey)
	problems := make([]error, len(questions)+1)
	var asked sync.WaitGroup
	for i, question := range questions {
		answer := map[string]any{askStatus: &f.Reported, askVolumes: &f.Listed, askTrash: &f.Deleted}[question]
		if away == nil {
			asked.Go(func() { problems[i] = controller.Ask(ctx, answer, strings.Fields(question)...) })
		}
	}
	f.State, err = cluster.Read(ctx, api, at, namespace)
	asked.Wait()
	f.Now = p.now()
	problems[len(questions)] = away
	for _, why := range problems {
		switch {
		case why == nil:
		case apierrors.IsForbidden(why), errors.Is(why, remote.ErrVersion), errors.Is(why, remote.ErrRefused):
			f.Missing = append(f.Missing, unasked+why.Error())
		default:
			f.Away = why.Error()
		}
	}
	f.Missing = slices.Compact(f.Missing) // one reason may be that of all questions
	return f, err
}

// list reads for a list, beside which is said what is missing in it.
func (p *plugin) list(ctx context.Context, namespace string, questions ...string) (facts.Facts, error) {
	f, err := p.read(ctx, namespace, questions...)
	if err == nil && !f.Answered() && f.Away == "" { // the driver's pods say some of it
		err = p.readPods(ctx, &f)
	}
	for _, missing := range f.Missing {
		p.note(missing)
	}
	if f.Away != "" {
		p.note(unasked + f.Away)
	}
	return f, err
}

func (p *plugin) readPods(ctx context.Context, f *facts.Facts) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	return f.ReadPods(ctx, api)
}

func (p *plugin) readResources(ctx context.Context, f *facts.Facts) error {
	api := p.objects
	if api == nil {
		config, err := p.flags.ToRESTConfig()
		if err != nil {
			return fmt.Errorf("read the kubeconfig: %w", err)
		}
		if api, err = dynamic.NewForConfig(config); err != nil {
			return err
		}
	}
	return f.ReadResources(ctx, api)
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
