// Command perf measures the driver, alone and in a cluster beside another provisioner, and writes a report. It never
// fails on a clock: a missed budget is a line in the report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := app.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}
