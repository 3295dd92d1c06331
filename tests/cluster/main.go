// Command cluster makes, updates and removes the kind cluster that demos and
// tests run on, on machines with and without a way to a container registry.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cli.Command().ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted; the next `up` goes on, `down` removes what is there: %w", err)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
