// Command suite runs the targets of `make test` in lanes, one beside the other, and keeps what each test took.
//
//	go -C tools run ./suite lanes "verify test-unit" "test-api e2e"
//	go test -json ./... | go -C tools run ./suite record test-unit
//
// Seconds are kept in artifacts/timings: a file for each `go test`, with a line for each package and test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("say what to do: lanes or record")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	root := flags.String("root", "..", "folder of the Makefile; artifacts/ is made there")
	verbose := flags.Bool("v", false, "record: show what tests print while they run, as go test -v does")
	part := flags.String("part", "", "record: which of the target's several go test this is")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	folder := filepath.Join(*root, "artifacts", "timings")
	switch {
	case args[0] == "record" && flags.NArg() == 1:
		return record(in, out, recording{folder: folder, target: flags.Arg(0), part: *part, verbose: *verbose})
	case args[0] == "lanes" && flags.NArg() > 0:
		return runLanes(ctx, out, *root, folder, flags.Args())
	}
	return errors.New("want lanes with a quoted list of targets for each, or record with the name of a target")
}
