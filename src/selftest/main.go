// Command selftest is the tiny workload of demos, `helm test` and end-to-end
// tests: it writes, reads and checks files on a volume, in an image that has
// no shell.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/selftest/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
