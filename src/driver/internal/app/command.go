// Package app makes the driver out of its parts: options, wiring, start and stop. It is the only package that sees the
// concrete parts together.
package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Modes of the driver.
const (
	modeNode       = "node"
	modeController = "controller"
)

// Run does what the arguments say and gives the process's exit code. The first SIGTERM or SIGINT ends it in order, a
// second one at once.
func Run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return command.Run(newCommand(getenv, stderr), args, stdout, stderr)
}

func newCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	var both endpoint.Options
	var mode string
	onNode, inController := nodeOptions{Options: &both}, controllerOptions{Options: &both}
	root := &cobra.Command{
		Use:   "driver",
		Short: "CSI driver that makes volumes of directories on this node",
		Long: "Without a command, driver serves CSI for the node it runs on.\n" +
			"The commands are clients of the driver that is running there.",
		RunE: func(command *cobra.Command, _ []string) error {
			switch {
			case mode == modeNode:
				return onNode.serve(command.Context(), stderr)
			case mode == modeController && !onNode.standalone:
				return inController.serve(command.Context(), stderr)
			default:
				return fmt.Errorf("--mode: %q: want %s, or without --standalone %s", mode, modeNode, modeController)
			}
		},
	}
	flags := root.Flags()
	flags.StringVar(&mode, "mode", modeNode,
		"node: serve the pools of this node; controller: serve upstream's sidecars for all nodes")
	both.AddFlags(flags, getenv)
	onNode.addFlags(flags, getenv)
	inController.addFlags(flags)
	root.PersistentFlags().StringVar(&both.StateDir, "state-dir", "/var/lib/hostpath-provisioner-state",
		"what the driver remembers of this node, with its control socket")
	root.AddCommand(newStatus(&both.StateDir),
		group("pool", "Change what this node knows of a pool", newForget(&both.StateDir), newTake(&both.StateDir)),
		group("volume", "List volumes; repair and give up single ones of this node", newList(&both.StateDir),
			newEnforce(&both.StateDir), newAdopt(&both.StateDir), newDiscard(&both.StateDir)))
	return root
}

func newStatus(stateDir *string) *cobra.Command {
	ask := func(ctx context.Context) (control.Status, error) { return control.NewClient(*stateDir).Status(ctx) }
	return showing("status", "Show the pools of this node, or in the controller those of all nodes", ask,
		func(w io.Writer, s control.Status) error { return control.WriteTable(w, s, time.Now()) })
}

func newList(stateDir *string) *cobra.Command {
	ask := func(ctx context.Context) ([]nodeapi.VolumeStatus, error) {
		return control.NewClient(*stateDir).Volumes(ctx)
	}
	return showing("list", "List the volumes of this node, or in the controller those of all nodes", ask,
		control.WriteVolumes)
}

// showing is a command that asks for something and shows it.
func showing[T any](
	name, short string, ask func(context.Context) (T, error), table func(io.Writer, T) error,
) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q: want table or json", output)
			}
			answer, err := ask(command.Context())
			if err != nil {
				return err
			}
			if output == "table" {
				return table(command.OutOrStdout(), answer)
			}
			encoder := json.NewEncoder(command.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(answer)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return command
}

// group is a command that only has others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(commands...)
	return command
}
