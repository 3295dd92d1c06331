// Package app makes the legacy provisioner out of its parts: options, wiring, start and stop.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// requestsPerSecond bounds the requests to the Kubernetes API. client-go's own bound of 5
	// allows about one claim per second.
	requestsPerSecond = 20
	// directoryMode is what the kubelet gives a hostPath that it makes.
	directoryMode = 0o755
)

// Run does what the arguments and the environment say until SIGTERM or SIGINT, and gives the process's exit code. The
// first signal ends it in order, a second one at once.
func Run(args []string, getenv func(string) string, stderr io.Writer) int {
	return command.Run("provisioner", stderr, func(ctx context.Context) error {
		o, err := parse(args, getenv, stderr)
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		if err != nil {
			return err
		}
		return serve(ctx, o, stderr)
	})
}

// serve provisions until ctx ends.
func serve(ctx context.Context, o options, stderr io.Writer) error {
	log, err := logging.New(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	logging.CaptureKlog(log)
	// On a node that the kubelet has prepared it is there. It is never made again: what vanishes later is a disk.
	if err := os.MkdirAll(o.directory, directoryMode); err != nil {
		return fmt.Errorf("make the directory of the volumes (PV_DIR): %w", err)
	}
	client, err := connect(o.kubeconfig)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "starting the legacy provisioner", logging.KeyVersion, buildinfo.Version(), logging.KeyNode,
		o.node, logging.KeyPath, o.directory)
	p, err := build(ctx, o, client, log)
	if err != nil {
		return err
	}
	err = p.run(ctx)
	log.InfoContext(ctx, "the legacy provisioner has stopped")
	return err
}

// connect returns a client of the cluster of a kubeconfig file, or with an empty path of the
// cluster that this process runs in.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API (--kubeconfig, or a service account in the cluster): %w", err)
	}
	config.UserAgent = "hostpath-provisioner-legacy/" + buildinfo.Version()
	config.QPS, config.Burst = requestsPerSecond, 2*requestsPerSecond
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes API: %w", err)
	}
	return client, nil
}
