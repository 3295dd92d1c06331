package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// serve runs the driver until ctx ends.
func serve(ctx context.Context, o options, stderr io.Writer) error {
	o.registrationDir = cmp.Or(o.registrationDir, filepath.Join(o.kubeletDir, "plugins_registry"))
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
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory (--state-dir): %w", err)
	}
	d := &driver{options: o, log: log, registry: prometheus.NewRegistry()}
	build := d.buildController
	if o.mode == modeNode {
		// Before anything is built: building reads what is published on this node, which must not change under it.
		unlock, err := process.Lock(o.stateDir)
		if err != nil {
			return err
		}
		defer unlock()
		build = d.buildNode
	}
	log.InfoContext(ctx, "starting the driver", logging.KeyVersion, buildinfo.Version(), logging.KeyMode, o.mode,
		logging.KeyNode, o.nodeName, logging.KeyPools, len(specs))
	// This takes all sockets, so that what is wrong is said before anything runs.
	if err := build(ctx, specs); err != nil {
		return errors.Join(err, d.Close())
	}
	err = d.Run(ctx)
	log.InfoContext(ctx, "the driver has stopped")
	return err
}
