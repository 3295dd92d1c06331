// Package app is the command line of selftest.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Exit codes: what the pod's status shows.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks a wrong command line.
var errUsage = errors.New("wrong command line")

const usage = `usage: selftest COMMAND [ARGUMENTS]

  write FILE [--bytes N]      write N bytes (default 1048576) that depend on nothing
                              but N, fsync, print sha256
  read FILE                   read all of FILE, print sha256 and size
  checksum FILE [--want SUM]  print sha256 of FILE; fail when it is not SUM
  fill DIR --bytes N          write N bytes into a new file in DIR, print how many fitted
  append-loop FILE            append one numbered line each second until told to stop;
                              on a full disk try again the next second
  ls DIR                      list DIR: mode, uid, gid, size, name
  id                          print uid, gid and supplementary groups
  sleep [--for 0s]            wait for SIGTERM, or until the time is over
`

// streams are where a command writes.
type streams struct{ out, err io.Writer }

// Main runs one command and returns the exit code of the process. A cancelled
// ctx (SIGTERM) ends sleep and append-loop at once and with success.
func Main(ctx context.Context, args []string, out, stderr io.Writer) int {
	s := streams{out: out, err: stderr}
	err := run(ctx, s, args)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		_, _ = fmt.Fprintf(stderr, "selftest: %v\n%s", err, usage)
		return exitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "selftest: %v\n", err)
		return exitFailed
	}
}

func run(ctx context.Context, s streams, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: no command", errUsage)
	}
	o, err := parse(args[1:])
	if err != nil {
		return err
	}
	switch args[0] {
	case "write":
		return withPath(o, func(path string) error { return writeFile(s.out, path, o.bytes.orDefault(defaultBytes)) })
	case "read":
		return withPath(o, func(path string) error { return readFile(s.out, path) })
	case "checksum":
		return withPath(o, func(path string) error { return checksum(s.out, path, o.want) })
	case "fill":
		return withPath(o, func(path string) error { return fillSized(s.out, path, o.bytes) })
	case "append-loop":
		return withPath(o, func(path string) error { return appendLoop(ctx, s, path, time.Second) })
	case "ls":
		return withPath(o, func(path string) error { return listDirectory(s.out, path) })
	case "id":
		return identity(s.out)
	case "sleep":
		sleep(ctx, o.duration)
		return nil
	case "help", "--help", "-h":
		_, err := io.WriteString(s.out, usage)
		return err
	}
	return fmt.Errorf("%w: unknown command %q", errUsage, args[0])
}

func fillSized(out io.Writer, path string, bytes size) error {
	if !bytes.set {
		return fmt.Errorf("%w: fill needs --bytes", errUsage)
	}
	return fillDirectory(out, path, bytes.value)
}

// options are the arguments of all commands together; each uses its own.
type options struct {
	path     string
	bytes    size
	want     string
	duration time.Duration
}

// size is a number of bytes that may be absent.
type size struct {
	value int64
	set   bool
}

func (s *size) orDefault(fallback int64) int64 {
	if s.set {
		return s.value
	}
	return fallback
}

// String and Set make size a flag.
func (s *size) String() string { return strconv.FormatInt(s.value, 10) }

// Set reads a number of bytes: digits only, so that a pod's manifest and the
// check that follows speak of the same number.
func (s *size) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("want a number of bytes, zero or more, got %q", text)
	}
	s.value, s.set = n, true
	return nil
}

// parse accepts flags before and after the one positional argument.
func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("selftest", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Var(&o.bytes, "bytes", "number of bytes")
	f.StringVar(&o.want, "want", "", "expected sha256")
	f.DurationVar(&o.duration, "for", 0, "how long to sleep; 0 is until SIGTERM")
	for {
		if err := f.Parse(args); err != nil {
			return o, fmt.Errorf("%w: %w", errUsage, err)
		}
		if f.NArg() == 0 {
			return o, nil
		}
		if o.path != "" {
			return o, fmt.Errorf("%w: one path is enough, got %q too", errUsage, f.Arg(0))
		}
		o.path, args = f.Arg(0), f.Args()[1:]
	}
}

func withPath(o options, do func(path string) error) error {
	if o.path == "" {
		return fmt.Errorf("%w: no path given", errUsage)
	}
	return do(o.path)
}
