// Package command is what the command lines of the project's binaries have in common.
package command

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/signal"
	"strconv"
	"syscall"
)

// Run does the work of a binary until it is done or told to end, and gives the process's exit code. The first SIGTERM
// or SIGINT ends the work's context, a second one the process. An error is printed after the binary's name.
func Run(name string, stderr io.Writer, work func(ctx context.Context) error) int {
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer restore()
	context.AfterFunc(ctx, restore)
	if err := work(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// IsAddress reports whether text is host:port with a number as port; the host may be empty.
func IsAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}
