// Package app makes the legacy provisioner out of its parts: options, wiring, start and stop.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// requestsPerSecond bounds the requests to the Kubernetes API. client-go's own bound of 5
// allows about one claim per second.
const requestsPerSecond = 20

// Run does what the arguments and the environment say until SIGTERM or SIGINT, and gives the process's exit code. The
// first signal ends it in order, a second one at once.
func Run(args []string, getenv func(string) string, stderr io.Writer) int {
	return process.Run("legacyprovisioner", stderr, func(ctx context.Context) error {
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

// serve works until ctx ends.
func serve(ctx context.Context, o options, stderr io.Writer) error {
	log, err := logging.New(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	logging.CaptureKlog(log)
	return o.own.serve(ctx, o, log)
}

// connect returns a client of the cluster of a kubeconfig file or a server's URL, or without either of the cluster that
// this process runs in.
func connect(master, kubeconfig string) (kubernetes.Interface, error) {
	read := rest.InClusterConfig
	if master != "" || kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags(master, kubeconfig) }
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
