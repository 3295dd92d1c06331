// Package remote runs commands in the controller's pod, as the user, and reads their answers.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// Errors of a command.
var (
	// ErrRefused is what the controller says itself: asked again it says the same.
	ErrRefused = errors.New("the controller refused")
	// ErrCutOff is an answer that is not whole: what was asked may be done all the same.
	ErrCutOff = errors.New("the answer was cut off")
	// ErrForbidden is a right that the user lacks.
	ErrForbidden = errors.New("you may not")
	// ErrVersion is a command that this version of the controller does not have.
	ErrVersion = errors.New("the controller is of another version")
)

// timeout bounds one command: longer work runs in the controller, and is asked about.
const timeout = time.Minute

// Controller runs commands in a controller's pod.
type Controller struct {
	At cluster.Controller
	// Version is that of this program.
	Version string
	// Exec runs a command in the pod's container and gives its output. New sets it; tests have their own.
	Exec func(ctx context.Context, command []string) (stdout, stderr []byte, err error)
}

// Ask runs a command with --output json, and reads its answer, which is one JSON document: an answer that ends early
// is none. answer may be nil.
func (c *Controller) Ask(ctx context.Context, answer any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stdout, stderr, err := c.Exec(ctx, append(append([]string{"/controller"}, args...), "--output", "json"))
	if err != nil {
		return c.explain(ctx, args, strings.TrimSpace(string(stderr)), err)
	}
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	if answer == nil {
		answer = &json.RawMessage{}
	}
	if err := decoder.Decode(answer); err != nil {
		return fmt.Errorf("%w: `controller %s` in pod %s/%s: %w; what was asked may be done all the same, so look "+
			"before you ask again", ErrCutOff, strings.Join(args, " "), c.At.Namespace, c.At.Pod, err)
	}
	return nil
}

// exited is an error of a command that has run.
type exited interface{ ExitStatus() int }

// explain says what to do about a command that has failed. The controller's own words come last in what it has said.
func (c *Controller) explain(ctx context.Context, args []string, said string, err error) error {
	line := strings.TrimPrefix(said[strings.LastIndexByte(said, '\n')+1:], "controller: ")
	var ended exited
	older := slices.ContainsFunc([]string{"unknown command", "unknown flag", "unknown shorthand"},
		func(words string) bool { return strings.Contains(line, words) })
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w run commands in pod %s/%s (get and create of pods/exec): %w; the chart's value "+
			"adminRoles makes a ClusterRole that allows it", ErrForbidden, c.At.Namespace, c.At.Pod, err)
	case older:
		return fmt.Errorf("%w: it is %s, this is %s, and `controller %s` says: %s; update the older of the two",
			ErrVersion, c.At.Version, c.Version, strings.Join(args, " "), line)
	case errors.As(err, &ended):
		return fmt.Errorf("%w: %s", ErrRefused, line)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: pod %s/%s did not answer within %s: %w", ErrCutOff, c.At.Namespace, c.At.Pod, timeout,
			context.Cause(ctx))
	}
	return fmt.Errorf("run `controller %s` in pod %s/%s: %w", strings.Join(args, " "), c.At.Namespace, c.At.Pod, err)
}
