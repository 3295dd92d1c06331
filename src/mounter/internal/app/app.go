// Package app is the mounter's command line and its loop: it looks at the claim's place every few seconds, and answers
// whether the claim is there.
package app

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/mounter/internal/claim"
)

// options is the command line.
type options struct {
	pool, path, healthAddress, logLevel, logFormat string
	source                                         claim.Source
}

// Run does what the arguments say and gives the process's exit code. The first SIGTERM or SIGINT ends it in order, a
// second one at once.
func Run(args []string, stdout, stderr io.Writer) int {
	return command.Run(newCommand(stderr), args, stdout, stderr)
}

func newCommand(stderr io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "mounter",
		Short: "Puts the filesystem of a claim at a pool's path on this node",
		Long: "mounter mounts a claim at csi/ in a pool's path on this node, and sees that it stays there. At " +
			"SIGTERM it\nunmounts the claim where no volume is on it.",
		RunE: func(command *cobra.Command, _ []string) error { return serve(command.Context(), o, stderr) },
	}
	flags := root.Flags()
	flags.StringVar(&o.pool, "pool", "", "name of the pool")
	flags.StringVar(&o.path, "path", "", "the pool's path, which the host shares with this container (Bidirectional)")
	flags.StringVar(&o.source.Directory, "source", "", "where the claim is mounted (volumeMode Filesystem)")
	flags.StringVar(&o.source.Device, "device", "", "the claim's device (volumeMode Block)")
	flags.StringVar(&o.healthAddress, "health-address", ":9810", "address of /livez and /readyz")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	return root
}

// validate gives all that is wrong, one line for each.
func (o *options) validate() error {
	const path = "want a clean absolute path"
	var c command.Check
	optional := func(option, value string) { c.That(value == "" || command.IsPath(value), option, value, path) }
	c.That(poolspec.ValidName(o.pool), "--pool", o.pool, "want the name of a pool")
	c.That(command.IsPath(o.path), "--path", o.path, path)
	c.That((o.source.Directory == "") != (o.source.Device == ""), "--source, --device", nil, "want one of the two")
	optional("--source", o.source.Directory)
	optional("--device", o.source.Device)
	c.That(command.IsAddress(o.healthAddress), "--health-address", o.healthAddress, "want host:port or :port")
	c.Log(o.logLevel, o.logFormat)
	return c.Err()
}

// serve keeps the claim at its place until ctx ends.
func serve(ctx context.Context, o options, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, err := logging.New(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	log = log.With(logging.KeyPool, o.pool)
	log.InfoContext(ctx, "starting the mounter", logging.KeyVersion, buildinfo.Version())
	k := newKeeper(claim.New(o.path, o.source, log), log)
	var parts process.Group
	if err := health.Add(ctx, &parts, "health", health.Config{
		Address: o.healthAddress, Log: log,
		Live:  health.Check{Name: "mounter", Do: func(context.Context) error { return nil }},
		Ready: []health.Check{{Name: "claim", Do: k.ready}},
	}); err != nil {
		return err
	}
	parts.Add("claim", func(ctx context.Context) error { k.keepMounted(ctx); return nil })
	return parts.Run(ctx)
}
