// Command install makes build-time tools available and prints where they are, one path per line.
//
//	go -C tools run ./install golangci-lint shellcheck
//
// A Go tool is built once from the version that its go.mod pins (so go.sum vouches for every byte of it) and kept
// outside the repository. A program of the operating system is taken from PATH or installed with apt-get when this
// process may do so; otherwise the error says which package is missing.
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
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	dir := flags.String("dir", ".", "folder of tools/go.mod")
	all := flags.Bool("all", false, "every tool that there is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted := flags.Args()
	if *all {
		wanted = strings.Fields(knownNames())
	}
	if len(wanted) == 0 {
		return fmt.Errorf("name at least one of: %s", knownNames())
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	for _, name := range wanted {
		path, err := provide(ctx, *dir, cache, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := fmt.Fprintln(out, path); err != nil {
			return err
		}
	}
	return nil
}

func provide(ctx context.Context, dir, cache, name string) (string, error) {
	if tool, ok := goTools()[name]; ok {
		return tool.provide(ctx, dir, cache)
	}
	if pkg, ok := systemTools()[name]; ok {
		return provideSystem(ctx, name, pkg)
	}
	return "", fmt.Errorf("not in the catalog; known are: %s", knownNames())
}

// cacheDir is where built tools stay between clones: HPP_CACHE, or hostpath-provisioner in the user's cache folder.
func cacheDir() (string, error) {
	if dir := os.Getenv("HPP_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.Join(errors.New("set HPP_CACHE or HOME so that built tools have a place"), err)
	}
	return filepath.Join(home, ".cache", "hostpath-provisioner"), nil
}
