// Package app makes the controller out of its parts: options, wiring, start and stop. It is the only package that sees
// the concrete parts together.
package app

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
)

// Run does what the arguments say and gives the process's exit code. The first SIGTERM or SIGINT ends it in order, a
// second one at once.
func Run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return command.Run(newCommand(getenv, stderr), args, stdout, stderr)
}

func newCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	o := options{Options: &endpoint.Options{}}
	root := &cobra.Command{
		Use:   "controller",
		Short: "CSI driver's controller, which finds the node for each call",
		Long: "Without a command, controller serves upstream's sidecars for all nodes.\n" +
			"The commands are clients of the controller that is running there; those for one node want --node.",
		RunE: func(command *cobra.Command, _ []string) error { return o.serve(command.Context(), stderr) },
	}
	flags := root.Flags()
	o.AddFlags(flags, getenv)
	o.addFlags(flags)
	root.PersistentFlags().StringVar(&o.StateDir, "state-dir", "/var/lib/hostpath-provisioner-state",
		"directory of the socket of the commands")
	root.AddCommand(admin.ControllerCommands(&o.StateDir)...)
	return root
}
