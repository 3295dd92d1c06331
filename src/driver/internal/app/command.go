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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Run does what the arguments say and gives the process's exit code. The first SIGTERM or SIGINT ends it in order, a
// second one at once.
func Run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := newCommand(getenv, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return command.Run("driver", stderr, root.ExecuteContext)
}

func newCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "driver",
		Short: "CSI driver that makes volumes of directories on this node",
		Long: "Without a command, driver serves CSI for the node it runs on.\n" +
			"The commands are clients of the driver that is running there.",
		Version:       buildinfo.Version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command.Context(), o, stderr)
		},
	}
	o.addFlags(root.Flags(), getenv)
	root.PersistentFlags().StringVar(&o.stateDir, "state-dir", defaultStateDir,
		"what the driver remembers of this node, with its control socket")
	root.AddCommand(newStatus(&o.stateDir), newPool(&o.stateDir), newVolume(&o.stateDir))
	return root
}

func newStatus(stateDir *string) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the pools of this node",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q: want table or json", output)
			}
			status, err := control.NewClient(*stateDir).Status(command.Context())
			if err != nil {
				return err
			}
			if output == "table" {
				return control.WriteTable(command.OutOrStdout(), status, time.Now())
			}
			encoder := json.NewEncoder(command.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(status)
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

func newPool(stateDir *string) *cobra.Command {
	return group("pool", "Change what this node knows of a pool", &cobra.Command{
		Use:   "forget NAME",
		Short: "Forget the identity of an absent pool",
		Long: "Forget the identity of a pool that is absent, because its disk was replaced on purpose or because it was\n" +
			"taken out of the configuration for good. A configured pool is then adopted anew with what is at its path;\n" +
			"volumes that were on the old disk are gone for this node. That is noted of a pool that this node never had,\n" +
			"too: PersistentVolumes that name it can then be deleted.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			known, err := control.NewClient(*stateDir).Forget(command.Context(), args[0])
			if err != nil {
				return err
			}
			said := "is forgotten on this node"
			if !known {
				said = "was never used on this node; it is noted that its volumes are gone"
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "pool %s %s\n", args[0], said)
			return err
		},
	})
}

// serve runs the driver until ctx ends.
func serve(ctx context.Context, o options, stderr io.Writer) error {
	o.complete()
	if err := o.validate(); err != nil {
		return fmt.Errorf("wrong options:\n%w", err)
	}
	log, err := logging.New(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	logging.CaptureKlog(log)
	specs, err := o.pools()
	if err != nil {
		return err
	}
	assemble := buildController
	if o.mode == modeNode {
		// Before anything is built: building reads what is published on this node, which must not change under it.
		unlock, err := lock(o.stateDir)
		if err != nil {
			return err
		}
		defer unlock()
		assemble = build
	}
	log.InfoContext(ctx, "starting the driver", logging.KeyVersion, buildinfo.Version(), logging.KeyMode, o.mode,
		logging.KeyNode, o.nodeName, logging.KeyPools, len(specs))
	d, err := assemble(ctx, o, specs, log)
	if err != nil {
		return err
	}
	err = d.run(ctx)
	log.InfoContext(ctx, "the driver has stopped")
	return err
}
