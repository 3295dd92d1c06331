// Package cli is the command line of `go run ./cluster`.
package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/install"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/vm"
)

const defaultName = "hpp"

// Command returns the root command.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A kind cluster for hostpath-provisioner, with or without a container registry in reach",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), routesCommand(), assetsCommand())
	return root
}

func upCommand() *cobra.Command {
	var (
		o         install.Options
		name      string
		workers   int
		noInstall bool
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the cluster and install the chart; again: update both in place",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			wanted := kindcluster.Options{Name: name, Workers: workers, MergeKubeconfig: true, Out: out}
			if !noInstall {
				wanted.MoreSteps = o.Steps()
			}
			c, err := kindcluster.Create(cmd.Context(), wanted)
			if err != nil {
				return err
			}
			if noInstall {
				return install.Summary(cmd.Context(), c, out)
			}
			return install.Run(cmd.Context(), c, o, out)
		},
	}
	f := cmd.Flags()
	addName(cmd, &name)
	f.IntVar(&workers, "workers", 2, "number of worker nodes")
	f.BoolVar(&o.Demo, "demo", true, "make a claim and a pod that writes to it")
	f.StringVar(&o.Chart, "chart", "../charts/hostpath-provisioner", "folder of the chart")
	f.StringSliceVar(&o.Values, "values", nil, "values files for the chart, the last one wins")
	f.BoolVar(&noInstall, "no-install", false, "stop when the cluster is ready")
	return cmd
}

func downCommand() *cobra.Command {
	var (
		name  string
		purge bool
	)
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster and all that belongs to it; the cache stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := kindcluster.Delete(cmd.Context(), name)
			if err == nil && purge {
				err = fromsource.PurgeImages(cmd.Context())
			}
			if err != nil {
				return err
			}
			dir, err := cache.Open()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"Cluster %s is gone. The cache in %s stays: the next `up` is quick.\n", name, dir)
			return err
		},
	}
	addName(cmd, &name)
	cmd.Flags().BoolVar(
		&purge, "purge", false, "also remove the images that Docker was given (node images built here, the registry's)",
	)
	return cmd
}

func routesCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "Make pods reachable again after a node's container was restarted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := kindcluster.Open(cmd.Context(), name)
			if err != nil {
				return err
			}
			return c.ReapplyRoutes(cmd.Context())
		},
	}
	addName(cmd, &name)
	return cmd
}

func assetsCommand() *cobra.Command {
	assetsOf := map[string]func(context.Context, cache.Dir, io.Writer) (string, error){
		"node-image": kindcluster.PrepareImage,
		"vm-kernel":  kernel,
	}
	for _, name := range fromsource.Programs() {
		assetsOf[name] = func(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
			return fromsource.Program(ctx, dir, out, name)
		}
	}
	names := slices.Sorted(maps.Keys(assetsOf))
	return &cobra.Command{
		Use:   "assets [" + strings.Join(names, "|") + "]...",
		Short: "Print where the programs are that tests start; build them if needed",
		Long: fromsource.ControlPlane + " (the default): a folder with kube-apiserver, etcd, kubectl and " +
			"kube-controller-manager, for KUBEBUILDER_ASSETS. The others are what `make deps` makes before any test.",
		Args:      cobra.OnlyValidArgs,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{fromsource.ControlPlane}
			}
			dir, err := cache.Open()
			if err != nil {
				return err
			}
			for _, which := range args {
				place, err := assetsOf[which](cmd.Context(), dir, cmd.ErrOrStderr())
				if err != nil {
					return fmt.Errorf("provide the programs of %s: %w", which, err)
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), place); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// kernel is the one that the VMs of tests/vm boot.
func kernel(ctx context.Context, _ cache.Dir, out io.Writer) (string, error) {
	k, err := vm.Fetch(ctx, func(what string) { _, _ = fmt.Fprintln(out, what) })
	return k.Image, err
}

func addName(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", defaultName, "name of the cluster")
}
