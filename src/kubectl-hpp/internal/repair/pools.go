package repair

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// onNode gives a command the flag for the node that does it.
func onNode(command *cobra.Command, node *string) {
	command.Flags().StringVar(node, "node", "", "the node whose pool it is (required)")
	_ = command.MarkFlagRequired("node")
}

// shows is an error where there is no such node, or it is connected and shows no such pool.
func (c Config) shows(ctx context.Context, node, pool string) error {
	var f facts.Facts
	if err := c.ask(ctx, &f.Reported, "status"); err != nil {
		return err
	}
	n, known := f.Node(node)
	switch {
	case !known:
		return fmt.Errorf("%w: the controller knows no node %s; `kubectl hpp get nodes` lists them", ErrNotFound, node)
	case n.State == facts.Connected && facts.Pool(n, pool).Name == "":
		return fmt.Errorf("%w: node %s shows no pool %s; `kubectl hpp get pools --node %[2]s` lists them; if only "+
			"PersistentVolumes name it, say --yes", ErrNotFound, node, pool)
	}
	return nil
}

func (c Config) newForget() *cobra.Command {
	var node string
	var yes bool
	command := &cobra.Command{
		Use: "forget NAME --node NODE", Short: "Say that the disk of an absent pool was replaced",
		Args: c.names("the name of one pool", 1),
		Long: "Have a node forget which disk a pool is, because it was replaced on purpose, or because the pool was\n" +
			"taken out of the configuration for good. The pool is then taken into use anew with what is at its\n" +
			"path. Volumes that were on the old disk are gone for this node. A pool that is there cannot be forgotten.",
		Example: "  kubectl hpp pool forget nvme0 --node worker-2",
		RunE: func(command *cobra.Command, args []string) error {
			if !yes {
				if err := c.shows(command.Context(), node, args[0]); err != nil {
					return err
				}
			}
			question := fmt.Sprintf("Node %s will not serve the volumes on the old disk of pool %s any more, and "+
				"takes what is at its path now.", node, args[0])
			if err := c.confirm(yes, question); err != nil {
				return err
			}
			return c.tell(command.Context(), "pool", "forget", args[0], "--node", node)
		},
	}
	onNode(command, &node)
	command.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return command
}

func (c Config) newTake() *cobra.Command {
	var node, from string
	var yes bool
	command := &cobra.Command{
		Use:   "take NAME --from UID --node NODE",
		Short: "Take a shared pool from a cluster that is gone",
		Args:  c.names("the name of one pool", 1),
		Long: "Make a shared pool this cluster's that belongs to another one, which is gone or was built anew. UID\n" +
			"is that of the other cluster's namespace kube-system, as `kubectl hpp status` shows it. Where the\n" +
			"other cluster is still there, its pods lose their volumes.",
		Example: "  kubectl hpp pool take nfs --from 1b4e28ba-2fa1-11d2-883f-0016d3cca427 --node worker-1",
		RunE: func(command *cobra.Command, args []string) error {
			question := fmt.Sprintf("If the cluster %s is still there, its pods lose what they have in pool %s.", from,
				args[0])
			if err := c.confirm(yes, question); err != nil {
				return err
			}
			return c.tell(command.Context(), "pool", "take", args[0], "--from", from, "--node", node)
		},
	}
	onNode(command, &node)
	command.Flags().StringVar(&from, "from", "", "UID of the other cluster's namespace kube-system (required)")
	_ = command.MarkFlagRequired("from")
	command.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return command
}
