package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/columns"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/table"
)

// getting is what the commands of `get` are told.
type getting struct {
	*plugin
	filter inventory.Filter
	all    bool     // namespaces
	states []string // that can be chosen
	sort   string
	output string
}

func (p *plugin) get() *cobra.Command {
	get := &cobra.Command{
		Use: "get {volumes | pools | nodes | trash}", Short: "List volumes, pools, nodes, or what is in the trash",
		Long: "List volumes, pools, nodes, or what is in the trash.\n\n" +
			"Volumes, pools and nodes are listed without the right to run commands in the controller's pod, too:\n" +
			"what only the controller knows is then -, and a note says which right is missing.",
		Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	get.AddCommand(p.getVolumes(), p.getPools(), p.getNodes(), p.getTrash())
	return get
}

// command makes one of `get`.
func (g *getting) command(c *cobra.Command, do func(*cobra.Command, []string) error) *cobra.Command {
	formats := []string{table.Table, table.Wide, table.JSON, table.YAML, table.Name}
	if c.Args == nil {
		c.Args = cobra.NoArgs
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := errors.Join(table.Check(g.output, formats...), g.filter.Check(g.states)); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return do(c, args)
	}
	c.Flags().StringVarP(&g.output, "output", "o", table.Table, strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// places adds the flags that choose nodes and pools.
func (g *getting) places(c *cobra.Command, pools bool) *cobra.Command {
	c.Flags().StringVar(&g.filter.Node, "node", "", "only those of this node")
	_ = c.RegisterFlagCompletionFunc("node", g.completeNodes)
	if pools {
		c.Flags().StringVar(&g.filter.Pool, "pool", "", "only those of this pool")
	}
	return c
}

// choices adds the flags that choose rows by their states, and sort them; the first order is the usual one.
func (g *getting) choices(c *cobra.Command, states, orders []string) *cobra.Command {
	g.states = states
	c.Flags().StringSliceVar(&g.filter.States, "state", nil,
		"only those in this state, may be repeated: "+strings.Join(states, ", "))
	c.Flags().StringVar(&g.sort, "sort", orders[0],
		strings.Join(orders, ", ")+"; the largest and oldest first, or with - before it last")
	for flag, values := range map[string][]string{"state": states, "sort": orders} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return c
}

func (p *plugin) getVolumes() *cobra.Command {
	g := &getting{plugin: p}
	c := g.command(&cobra.Command{
		Use: "volumes [CLAIM…]", Aliases: []string{"volume", "vol"}, Short: "List volumes by their claims",
		Long: "List the volumes of a namespace, or with -A of all, also those that no claim names any more.\n\n" +
			"STATE is one of: " + strings.Join(facts.States(), ", ") + ".\n" +
			"KEPT-BY says what keeps a volume to its size: strict, cooperative, or none.",
		Example: "  # The fullest first\n  kubectl hpp get volumes -n shop --sort use\n" +
			"  # What nothing in Kubernetes names any more\n  kubectl hpp get volumes -A --state orphan\n" +
			"  # Everything on a node, for a program\n  kubectl hpp get volumes -A --node worker-4 -o json",
		Args: cobra.ArbitraryArgs, ValidArgsFunction: p.completeClaims,
	}, g.volumes)
	flags := c.Flags()
	flags.BoolVarP(&g.all, "all-namespaces", "A", false, "volumes of all namespaces, and those of none")
	flags.StringVar(&g.filter.Class, "class", "", "only those of this StorageClass")
	return g.choices(g.places(c, true), facts.States(), inventory.Names(inventory.VolumeOrders()))
}

func (g *getting) volumes(c *cobra.Command, claims []string) error {
	if err := inventory.Sort(nil, g.sort, inventory.VolumeOrders()); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if !g.all {
		namespace, err := g.namespace()
		if err != nil {
			return err
		}
		g.filter.Namespace = namespace
	}
	f, err := g.list(c.Context(), g.filter.Namespace, askStatus, askVolumes)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(inventory.Volumes(f), func(v inventory.Volume) bool {
		return !g.filter.Volume(v) || len(claims) > 0 && !slices.Contains(claims, v.Claim)
	})
	for _, claim := range claims {
		if !slices.ContainsFunc(all, func(v inventory.Volume) bool { return v.Claim == claim }) {
			return fmt.Errorf("no volume of the driver is for claim %s and fits the flags; see `kubectl hpp get "+
				"volumes -A`", claim)
		}
	}
	if err := inventory.Sort(all, g.sort, inventory.VolumeOrders()); err != nil {
		return err
	}
	return show(g, table.Rows[inventory.Volume]{
		All: all, Columns: columns.Volumes(g.all, g.now()), Name: columns.NameOfVolume,
	}, "volumes")
}

func (p *plugin) getPools() *cobra.Command {
	g := &getting{plugin: p}
	c := g.command(&cobra.Command{
		Use: "pools", Aliases: []string{"pool"}, Short: "List the pools of nodes, and the room in them",
		Long: "List the pools of nodes. LARGEST is the largest new volume that a pool has room for.\n\n" +
			"A pool may have two states: of one that is present, degraded and read-only say that it is in trouble.",
		Example: "  # Where the next volume fits\n  kubectl hpp get pools --sort largest\n" +
			"  # What is wrong, and why\n  kubectl hpp get pools --state absent,degraded,read-only -o wide",
	}, g.pools)
	return g.choices(g.places(c, true), inventory.PoolStates(), inventory.Names(inventory.PoolOrders()))
}

func (g *getting) pools(c *cobra.Command, _ []string) error {
	if err := inventory.Sort(nil, g.sort, inventory.PoolOrders()); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	f, err := g.list(c.Context(), "", askStatus)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(inventory.Pools(f), func(p inventory.Pool) bool { return !g.filter.OfPool(p) })
	if err := inventory.Sort(all, g.sort, inventory.PoolOrders()); err != nil {
		return err
	}
	return show(g, table.Rows[inventory.Pool]{
		All: all, Columns: columns.Pools(g.now()), Name: func(p inventory.Pool) string { return p.Node + "/" + p.Name },
	}, "pools")
}

func (p *plugin) getNodes() *cobra.Command {
	g := &getting{plugin: p}
	return g.places(g.command(&cobra.Command{
		Use: "nodes", Aliases: []string{"node"}, Short: "List the nodes that have the driver",
		Long: "List the nodes that have the driver. POOLS are those that are there, of those that should be.",
	}, func(c *cobra.Command, _ []string) error {
		f, err := g.list(c.Context(), "", askStatus, askVolumes)
		if err != nil {
			return err
		}
		all := slices.DeleteFunc(inventory.Nodes(f), func(n inventory.Node) bool {
			return !g.filter.Place(n.Name, "")
		})
		return show(g, table.Rows[inventory.Node]{
			All: all, Columns: columns.Nodes(g.now()), Name: func(n inventory.Node) string { return "node/" + n.Name },
		}, "nodes")
	}), false)
}

func (p *plugin) getTrash() *cobra.Command {
	g := &getting{plugin: p}
	return g.places(g.command(&cobra.Command{
		Use: "trash", Short: "List deleted volumes that can be brought back",
		Long: "List deleted volumes of all namespaces, or with -n of one, that can be brought back.\n\n" +
			"KEPT-FOR is how long that is so. Names (-o name) are those of the entries in the trash.",
		Example: "  kubectl hpp get trash -n shop",
	}, func(c *cobra.Command, _ []string) error {
		g.filter.Namespace = *g.flags.Namespace
		controller, err := g.controller(c.Context())
		if err != nil {
			return err
		}
		var deleted []nodeapi.DeletedVolume
		if err := controller.Ask(c.Context(), &deleted, strings.Fields(askTrash)...); err != nil {
			return err
		}
		all, unknown := inventory.Trash(deleted)
		for _, why := range unknown {
			g.note(why)
		}
		all = slices.DeleteFunc(all, func(d inventory.Deleted) bool { return !g.filter.Deleted(d) })
		return show(g, table.Rows[inventory.Deleted]{
			All: all, Columns: columns.Trash(g.now()), Name: func(d inventory.Deleted) string { return d.Entry },
		}, "deleted volumes")
	}), true)
}

// show writes rows, and says so where a person sees none.
func show[T any](g *getting, rows table.Rows[T], what string) error {
	if len(rows.All) == 0 && (g.output == table.Table || g.output == table.Wide) {
		g.note("no " + what + " found" + within(g.filter.Namespace))
	}
	return rows.Write(g.Out, g.output)
}

// completeNodes gives the names of nodes.
func (p *plugin) completeNodes(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.complete(c, cluster.Nodes, "")
}

// completeClaims gives the claims of the namespace.
func (p *plugin) completeClaims(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	namespace, err := p.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return p.complete(c, cluster.Claims, namespace)
}
