package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/move"
)

// moving are the commands that move volumes to other nodes.
func (p *plugin) moving() []*cobra.Command { return []*cobra.Command{p.newMove(), p.newDrain()} }

// mover gives what moves volumes, and the name of their driver.
func (p *plugin) mover(ctx context.Context) (*move.Mover, string, error) {
	api, err := p.api()
	if err != nil {
		return nil, "", err
	}
	controller, err := p.controller(ctx)
	if err != nil {
		return nil, "", err
	}
	return &move.Mover{API: api, Controller: controller, Out: p.Out, Interval: 3 * time.Second, Now: time.Now},
		controller.At.Driver, nil
}

func (p *plugin) newMove() *cobra.Command {
	var q move.Request
	var apply, abort bool
	command := &cobra.Command{
		Use: "move CLAIM --to NODE", Short: "Move a claim's volume to another node", Args: cobra.ExactArgs(1),
		Long: "Move a claim's volume, with its data, to another node. Without --apply it only shows what would be\n" +
			"done. The pods that use the claim are evicted, never their owner scaled: those that come in their\n" +
			"place wait until the data is there. The controller copies, so that the move goes on if this command\n" +
			"ends: run again, it shows how far that is. What was on the old node stays in the trash there for a\n" +
			"day at least.\n" +
			"Until its data is copied, --abort has the volume stay where it is.",
		Example: "  kubectl hpp move data-db-0 -n shop --to worker-2\n" +
			"  kubectl hpp move data-db-0 -n shop --to worker-2 --apply\n" +
			"  kubectl hpp move data-db-0 -n shop --abort",
		RunE: func(command *cobra.Command, args []string) (err error) {
			if (q.To == "") != abort {
				return fmt.Errorf("%w: want either --to NODE or --abort", errUsage)
			}
			if q.Namespace, err = p.namespace(); err != nil {
				return err
			}
			q.Claim = args[0]
			return p.move(command.Context(), q, apply)
		},
	}
	flags := command.Flags()
	flags.StringVar(&q.To, "to", "", "the node that it moves to")
	flags.BoolVar(&apply, "apply", false, "do it")
	flags.BoolVar(&abort, "abort", false, "end a move: the volume stays where it is")
	flags.BoolVar(&q.LeaveSnapshots, "leave-snapshots", false, "let its snapshots stay on the old node")
	return command
}

func (p *plugin) move(ctx context.Context, q move.Request, apply bool) error {
	m, _, err := p.mover(ctx)
	if err != nil {
		return err
	}
	if q.To == "" {
		return m.Abort(ctx, q)
	}
	plan, err := m.Plan(ctx, q)
	if err != nil {
		return err
	}
	if !apply {
		_, _ = fmt.Fprintln(p.Out, "nothing was done; add --apply to do it")
		return nil
	}
	return m.Apply(ctx, q, plan)
}

func (p *plugin) newDrain() *cobra.Command {
	var d move.Drain
	command := &cobra.Command{
		Use: "drain NODE", Short: "Move all volumes of a cordoned node to others", Args: cobra.ExactArgs(1),
		Long: "Move all volumes that claims have on a node to others, one after the other, as `move` does: each to\n" +
			"the node with the most room in its pool, or to the one that --to names. The node has to be cordoned.\n" +
			"Without --apply it only shows what would be done. It goes on after a volume that cannot be moved,\n" +
			"and lists those.",
		Example: "  kubectl cordon worker-1\n  kubectl hpp drain worker-1\n  kubectl hpp drain worker-1 --apply",
		RunE: func(command *cobra.Command, args []string) error {
			m, driver, err := p.mover(command.Context())
			if err != nil {
				return err
			}
			d.Node, d.Driver = args[0], driver
			return m.Drain(command.Context(), d)
		},
	}
	flags := command.Flags()
	flags.StringVar(&d.To, "to", "", "the node that they move to; empty chooses one for each")
	flags.BoolVar(&d.Apply, "apply", false, "do it")
	flags.BoolVar(&d.LeaveSnapshots, "leave-snapshots", false, "let their snapshots stay on the node")
	return command
}
