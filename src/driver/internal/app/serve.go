package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
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
		unlock, err := lockStateDir(o.stateDir)
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
		return errors.Join(err, d.close())
	}
	err = errors.Join(runStages(ctx, d.stages), d.close())
	log.InfoContext(ctx, "the driver has stopped")
	return err
}

// lockStateDir takes the lock of the state directory, which the kernel releases however the process ends. Two drivers
// on one node would each think that they alone change the pools.
func lockStateDir(stateDir string) (unlock func(), err error) {
	path := filepath.Join(stateDir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the state directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another driver has locked %s; only one may run on a node: stop it first", path)
		} else {
			err = fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// stage is something that runs until its context ends.
type stage struct {
	name string
	run  func(ctx context.Context) error
}

// runStages starts stages in their order. When ctx ends or a stage does, it stops all in the reverse order, each before
// the next, and gives the errors of all.
func runStages(ctx context.Context, stages []stage) error {
	type running struct {
		stage
		cancel context.CancelFunc
		done   chan error
	}
	ended := make(chan struct{}, len(stages))
	started := make([]running, 0, len(stages))
	for _, s := range stages {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{stage: s, cancel: cancel, done: make(chan error, 1)}
		started = append(started, r)
		go func() {
			r.done <- r.run(own)
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended: // it has no business to; its error says why
	}
	var problems []error
	for _, s := range slices.Backward(started) {
		s.cancel()
		if err := <-s.done; err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(problems...)
}
