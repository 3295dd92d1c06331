// Command registryd is the container registry of a test cluster. It runs in a
// container on the cluster's network, speaks plain HTTP, and keeps blobs in a
// folder; manifests are in memory, so everything is pushed again when it was
// restarted (`up` does).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "registryd:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("registryd", flag.ContinueOnError)
	address := flags.String("address", ":5000", "where to listen")
	data := flags.String("data", "/data", "folder for blobs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := &http.Server{
		Addr: *address,
		Handler: registry.New(
			registry.WithBlobHandler(registry.NewDiskBlobHandler(*data)),
			registry.Logger(log.New(io.Discard, "", 0)),
		),
		ReadHeaderTimeout: 10 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		// Pulls under way get a moment; ctx itself is over already.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		return errors.Join(server.Shutdown(grace))
	}
}
