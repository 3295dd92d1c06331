// Package app makes the operator out of its parts: options, wiring, start and stop. It is the only package that sees
// the concrete parts together.
package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/uninstall"
)

// Run does what the arguments say and gives the process's exit code. The first SIGTERM or SIGINT ends it in order, a
// second one at once.
func Run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return command.Run(newCommand(getenv, stderr), args, stdout, stderr)
}

func newCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "operator",
		Short: "Runs the hostpath provisioner as a HostPathProvisioner resource says",
		RunE: func(command *cobra.Command, _ []string) error {
			return operate(command.Context(), o, stderr)
		},
	}
	o.addFlags(root.Flags(), getenv)
	o.tlsMinVersion = getenv("TLS_MIN_VERSION_OVERRIDE")
	o.tlsCipherSuites = split(getenv("TLS_CIPHERS_OVERRIDE"))
	root.AddCommand(uninstall.Command())
	return root
}

// split reads a list with commas.
func split(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// operate runs the operator until ctx ends.
func operate(ctx context.Context, o options, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, err := logging.New(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	logging.CaptureKlog(log)
	slog.SetDefault(log) // net/http and Helm write to it
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := o.connect()
	if err != nil {
		return err
	}
	return run(ctx, o, config, log)
}

func run(ctx context.Context, o options, config *rest.Config, log *slog.Logger) error {
	log.InfoContext(ctx, "starting the operator", logging.KeyVersion, buildinfo.Version(), logging.KeyNamespace,
		o.namespace)
	definition, err := keepDefinition(config, log)
	if err != nil {
		return err
	}
	if err := definition.Ensure(ctx); err != nil {
		return err
	}
	mgr, err := build(ctx, o, config, definition, log)
	if err != nil {
		return err
	}
	err = mgr.Start(ctx)
	log.InfoContext(ctx, "the operator has stopped")
	return err
}

// connect finds the cluster: by --kubeconfig, else as a pod in it.
func (o *options) connect() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster (--kubeconfig): %w", err)
	}
	config.UserAgent = "hostpath-provisioner-operator/" + buildinfo.Version()
	return config, nil
}
