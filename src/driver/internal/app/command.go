// Package app makes the driver out of its parts: options, wiring, start and stop. It is the only package that sees the
// concrete parts together.
package app

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
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
		"what the driver remembers of this node, with the socket of the commands")
	root.AddCommand(admin.Commands(&both.StateDir)...)
	return root
}
