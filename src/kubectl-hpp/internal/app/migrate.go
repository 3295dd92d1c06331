package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/migrate"
)

// migrating are the flags of migrate.
type migrating struct {
	migrate.Options
	all, apply, undo, finish, replace bool
}

func newMigrate(p *plugin) *cobra.Command {
	var o migrating
	command := &cobra.Command{
		Use:   "migrate --from SOURCE --pool NAME [CLAIM…]",
		Short: "Make volumes of another provisioner this driver's, by renaming",
		Long: "Make volumes of another provisioner of directories this driver's, without copying a byte: each claim\n" +
			"keeps its name and its class's name. Without --apply the plan is printed and nothing is changed;\n" +
			"--undo and --finish start at once. --apply stops the pods of each claim in turn, by eviction; their\n" +
			"owners start them again. Interrupted anywhere, run it again, or --undo. Until --finish everything can\n" +
			"be undone.",
		Example: "  kubectl hpp migrate --from local-path --pool local -n shop\n" +
			"  kubectl hpp migrate --from local-path --pool local -n shop pg-0 --apply\n" +
			"  kubectl hpp migrate --from local-path --pool local -n shop --undo\n" +
			"  kubectl hpp migrate --from local-path --pool local -A --finish --replace-class",
		RunE: func(command *cobra.Command, claims []string) error {
			o.Claims = claims
			return p.migrate(command.Context(), o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.From, "from", "", strings.Join(slices.Sorted(maps.Keys(migrate.Sources())), ", or "))
	flags.StringVar(&o.Provisioner, "provisioner", "", "name of the old provisioner, where that is not the usual one")
	flags.StringVar(&o.Pool, "pool", "", "the pool that the volumes become part of")
	flags.StringVar(&o.Enforce, "enforce", nodeapi.EnforceNow,
		"when they are held to their sizes: now (before their pods start), later (kubectl hpp enforce), never")
	flags.BoolVar(&o.Grow, "grow", false, "make volumes larger that use more than their claims asked for")
	flags.BoolVar(&o.AnyPath, "any-path", false,
		"also directories with other names than the old provisioner gives, such as by a pathPattern")
	flags.BoolVarP(&o.all, "all-namespaces", "A", false, "of all namespaces")
	flags.BoolVar(&o.apply, "apply", false, "do it, and go on with what was begun")
	flags.BoolVar(&o.undo, "undo", false, "give the claims their old volumes back")
	flags.BoolVar(&o.finish, "finish", false, "end it: restore the reclaim policies; nothing can be undone then")
	flags.BoolVar(&o.replace, "replace-class", false, "with --finish: replace the old class by one of the same name")
	command.MarkFlagsMutuallyExclusive("apply", "undo", "finish")
	for _, required := range []string{"from", "pool"} {
		_ = command.MarkFlagRequired(required)
	}
	return command
}

func (p *plugin) migrate(ctx context.Context, o migrating) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if !o.all {
		if o.Namespace, err = p.namespace(); err != nil {
			return err
		}
	}
	controller, err := p.controller(ctx)
	if err != nil {
		return err
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	m := &migrate.Migration{
		Options: o.Options, API: api, Ask: controller.Ask, Out: p.Out, Wait: moment,
		Driver: controller.At.Driver, TopologyKey: controller.At.TopologyKey, JournalNamespace: controller.At.Namespace,
	}
	switch {
	case o.undo:
		return m.Undo(ctx)
	case o.finish:
		return m.Finish(ctx, o.replace)
	}
	return o.forward(ctx, m)
}

// forward prints the plan, and does it with --apply.
func (o migrating) forward(ctx context.Context, m *migrate.Migration) error {
	rows, err := m.Gather(ctx)
	switch {
	case err != nil:
		return err
	case len(rows) == 0 && o.all:
		return fmt.Errorf("no claim of %s in any namespace", o.From)
	case len(rows) == 0:
		return fmt.Errorf("no claim of %s in namespace %s; -A looks in all", o.From, o.Namespace)
	}
	if err := migrate.Write(m.Out, rows); err != nil {
		return err
	}
	switch {
	case o.apply:
		return m.Apply(ctx, rows)
	case !slices.ContainsFunc(rows, func(r migrate.Row) bool { return len(r.Problems) == 0 }):
		return errors.New("no claim can be migrated: see PROBLEM")
	}
	return nil
}

// check refuses flags that contradict each other.
func (o migrating) check() error {
	switch {
	case migrate.Sources()[o.From] == "":
		return fmt.Errorf("%w: --from: %q: want %s", errUsage, o.From,
			strings.Join(slices.Sorted(maps.Keys(migrate.Sources())), ", or "))
	case o.all && len(o.Claims) > 0:
		return fmt.Errorf("%w: claims have names in one namespace: leave --all-namespaces out", errUsage)
	case o.replace && !o.finish:
		return fmt.Errorf("%w: --replace-class is only of --finish", errUsage)
	case !slices.Contains([]string{nodeapi.EnforceNow, nodeapi.EnforceLater, nodeapi.EnforceNever}, o.Enforce):
		return fmt.Errorf("%w: --enforce: %q: want now, later or never", errUsage, o.Enforce)
	}
	return nil
}

// moment is how often something is looked at that takes its time.
func moment(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-time.After(2 * time.Second):
		return nil
	}
}
