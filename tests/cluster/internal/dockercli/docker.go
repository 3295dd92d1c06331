// Package dockercli talks to Docker through its command, as kind does, so
// that whatever the user has set up for it (contexts, rootless) works.
package dockercli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Output runs docker with args and returns what it prints, without the last
// line's end. An error holds the command and what docker said.
func Output(ctx context.Context, args ...string) (string, error) {
	return Input(ctx, nil, args...)
}

// Run is Output for when only success matters.
func Run(ctx context.Context, args ...string) error {
	_, err := Output(ctx, args...)
	return err
}

// Input is Output with something to read for the command.
func Input(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", &Error{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), Err: err}
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// Error is a docker command that failed.
type Error struct {
	Args           []string
	Stdout, Stderr string
	Err            error
}

// Error says what was run and what came of it.
func (e *Error) Error() string {
	said := strings.TrimSpace(e.Stderr)
	if said == "" {
		said = strings.TrimSpace(e.Stdout)
	}
	return fmt.Sprintf("docker %s: %v: %s", strings.Join(e.Args, " "), e.Err, said)
}

// Unwrap returns the process's own error.
func (e *Error) Unwrap() error { return e.Err }

// HasImage reports whether the image is in Docker's store.
func HasImage(ctx context.Context, image string) (bool, error) {
	return exists(Run(ctx, "image", "inspect", image))
}

// HasContainer reports whether a container of that name exists, running or not.
func HasContainer(ctx context.Context, name string) (bool, error) {
	return exists(Run(ctx, "container", "inspect", name))
}

// HasNetwork reports whether a network of that name exists.
func HasNetwork(ctx context.Context, name string) (bool, error) {
	return exists(Run(ctx, "network", "inspect", name))
}

// Remove removes a container with its volumes, or a network, when it is there.
func Remove(ctx context.Context, kind, name string) error {
	args := []string{kind, "rm", name}
	if kind == "container" {
		args = []string{"container", "rm", "--force", "--volumes", name}
	}
	_, err := exists(Run(ctx, args...))
	return err
}

// exists turns docker's "No such …" into false.
func exists(err error) (bool, error) {
	var failed *Error
	if errors.As(err, &failed) && saysMissing(failed.Stderr) {
		return false, nil
	}
	return err == nil, err
}

// saysMissing knows the words of Docker 20 and of newer versions.
func saysMissing(stderr string) bool {
	stderr = strings.ToLower(stderr)
	return strings.Contains(stderr, "no such ") || strings.Contains(stderr, "not found")
}
