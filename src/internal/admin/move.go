package admin

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func newMove(stateDir *string) *cobra.Command {
	list := showing("list", "List the moves that are under way", func(ctx context.Context) ([]nodeapi.Move, error) {
		return listing(ctx, *stateDir, &wire.ListMovesRequest{}, wire.AdminClient.Moves, wire.ToMove)
	}, WriteMoves)
	return group("move", "Move volumes to other nodes", newStartMove(stateDir), list,
		newAbortMove(stateDir))
}

func newStartMove(stateDir *string) *cobra.Command {
	var q wire.StartMoveRequest
	command := onMove("start PV", "Begin to move the volume of a PersistentVolume to another node",
		func(ctx context.Context, pv string) (nodeapi.Move, error) {
			q.Pv = pv
			answer, err := call(ctx, *stateDir, &q, wire.AdminClient.StartMove)
			return wire.ToMove(answer), err
		})
	command.Flags().StringVar(&q.To, "to", "", "the node that it moves to")
	command.Flags().BoolVar(&q.LeaveSnapshots, "leave-snapshots", false, "let its snapshots stay behind")
	command.Flags().BoolVar(&q.DryRun, "dry-run", false, "say only what would be done, and why it would be refused")
	_ = command.MarkFlagRequired("to") // fails only for a flag that does not exist
	return command
}

func newAbortMove(stateDir *string) *cobra.Command {
	return onMove("abort PV", "Have the volume of a PersistentVolume stay where it is",
		func(ctx context.Context, pv string) (nodeapi.Move, error) {
			answer, err := call(ctx, *stateDir, &wire.AbortMoveRequest{Pv: pv}, wire.AdminClient.AbortMove)
			return wire.ToMove(answer), err
		})
}

// onMove is a command about the volume of a PersistentVolume that shows a move.
func onMove(use, short string, ask func(ctx context.Context, pv string) (nodeapi.Move, error)) *cobra.Command {
	return shown(&cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), RunE: func(command *cobra.Command, args []string) error {
			return show(command, func(ctx context.Context) (nodeapi.Move, error) { return ask(ctx, args[0]) },
				func(w io.Writer, m nodeapi.Move) error { return WriteMoves(w, []nodeapi.Move{m}) })
		},
	})
}

// WriteMoves writes moves for a person, one line each, and below them why one that is planned is refused.
func WriteMoves(w io.Writer, all []nodeapi.Move) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "PV\tCLAIM\tFROM\tTO\tPOOL\tSIZE\tCOPIED\tPHASE\tMESSAGE")
	for _, m := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.PV, orNone(m.Claim), m.From, m.To, orNone(m.Pool),
			bytesize.Format(m.Bytes), bytesize.Format(m.Copied), orNone(m.Phase), orNone(m.Message))
	}
	for _, m := range all {
		for _, problem := range m.Problems {
			fmt.Fprintf(table, "\n%s: %s\n", m.PV, problem)
		}
	}
	return flush(table, "moves")
}
