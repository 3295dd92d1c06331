// Package process is how the project's processes start and end: the signals, the parts that run beside one another, and
// the lock that keeps a second one out.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
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

// Lock takes the lock of a state directory, which the kernel releases however the process ends. Two drivers on one node
// would each think that they alone change the pools.
func Lock(stateDir string) (unlock func() error, err error) {
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
	return file.Close, nil
}
