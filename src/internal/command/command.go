// Package command is what the command lines of the project's binaries have in common.
package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// Run does what the arguments of a binary say and gives its exit code. The first SIGTERM or SIGINT ends it in order, a
// second one at once.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.Version, root.Args, root.SilenceUsage, root.SilenceErrors = buildinfo.Version(), cobra.NoArgs, true, true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return process.Run(root.Name(), stderr, root.ExecuteContext)
}
