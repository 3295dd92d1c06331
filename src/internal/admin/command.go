// Package admin is how an administrator asks a running driver: the commands, what they print, and the calls on a unix
// socket that only the driver's user may open. Only that one process touches the pools or knows the nodes.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Commands are clients of the driver whose state is in a directory.
func Commands(stateDir *string) []*cobra.Command {
	return commands(stateDir, newEnforce(stateDir), newMeasure(stateDir))
}

// ControllerCommands are clients of the controller, which has work of its own that nobody has to wait for.
func ControllerCommands(stateDir *string) []*cobra.Command {
	return append(commands(stateDir, inBackground(stateDir, newEnforce(stateDir)), startMeasure(stateDir)),
		newWork(stateDir), newMove(stateDir))
}

func commands(stateDir *string, enforce, measure working) []*cobra.Command {
	return []*cobra.Command{
		newStatus(stateDir),
		group("pool", "Change what a node knows of a pool", newForget(stateDir), newTake(stateDir)),
		group("volume", "List and measure volumes; repair and give up single ones of a node",
			newList(stateDir), enforce.Command, measure.Command, newAdopt(stateDir), newDiscard(stateDir),
			newUndelete(stateDir)),
		newDirectory(stateDir),
	}
}

func newStatus(stateDir *string) *cobra.Command {
	ask := func(ctx context.Context) (nodeapi.Status, error) {
		answer, err := call(ctx, *stateDir, &wire.StatusRequest{}, wire.AdminClient.Status)
		return wire.ToStatus(answer), err
	}
	return showing("status", "Show the pools of this node, or in the controller those of all nodes", ask,
		func(w io.Writer, s nodeapi.Status) error { return WriteTable(w, s, time.Now()) })
}

func newList(stateDir *string) *cobra.Command {
	ask := func(ctx context.Context) ([]nodeapi.VolumeStatus, error) { return Volumes(ctx, *stateDir) }
	command := showing("list", "List the volumes of this node, or in the controller those of all nodes", ask,
		WriteVolumes)
	deleted := command.Flags().Bool("deleted", false, "list what is in the trash, and can be undeleted, instead")
	volumes := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if !*deleted {
			return volumes(command, args)
		}
		ask := func(ctx context.Context) ([]nodeapi.DeletedVolume, error) { return Deleted(ctx, *stateDir) }
		return show(command, ask, func(w io.Writer, all []nodeapi.DeletedVolume) error {
			return WriteDeleted(w, all, time.Now())
		})
	}
	return command
}

// showing is a command that asks for something and shows it.
func showing[T any](
	name, short string, ask func(context.Context) (T, error), table func(io.Writer, T) error,
) *cobra.Command {
	return shown(&cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return show(command, ask, table) },
	})
}

// shown gives a command the flag that show reads.
func shown(command *cobra.Command) *cobra.Command {
	command.Flags().StringP("output", "o", "table", "table or json")
	return command
}

// inJSON reports whether a command is to answer with one JSON document.
func inJSON(command *cobra.Command) (bool, error) {
	output, err := command.Flags().GetString("output")
	if err == nil && output != "table" && output != "json" {
		err = fmt.Errorf("--output: %q: want table or json", output)
	}
	return output == "json", err
}

// show asks for something and shows it as the flag says.
func show[T any](
	command *cobra.Command, ask func(context.Context) (T, error), table func(io.Writer, T) error,
) error {
	asJSON, err := inJSON(command)
	if err != nil {
		return err
	}
	answer, err := ask(command.Context())
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(command.OutOrStdout(), answer)
	}
	return table(command.OutOrStdout(), answer)
}

func writeJSON(w io.Writer, answer any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}

// message is the answer of a command that only says what it has done.
type message struct {
	Message string `json:"message"`
}

// tell does something and says that it is done.
func tell(command *cobra.Command, do func(context.Context) (said string, err error)) error {
	ask := func(ctx context.Context) (m message, err error) {
		m.Message, err = do(ctx)
		return m, err
	}
	return show(command, ask, func(w io.Writer, m message) error {
		_, err := fmt.Fprintln(w, m.Message)
		return err
	})
}

// group is a command that only has others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(commands...)
	return command
}

// onNode gives a command flags for the node that does its work, and for how it answers.
func onNode(command *cobra.Command, node *string) *cobra.Command {
	command.Flags().StringVar(node, "node", "", "the node that does it; required in the controller")
	return shown(command)
}
