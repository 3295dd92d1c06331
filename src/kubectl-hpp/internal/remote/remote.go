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
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

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
	// Find looks for a pod that can be asked, after the one that was asked is gone.
	Find func(ctx context.Context) (cluster.Controller, error)
	// Version is that of this program.
	Version string
	// Exec runs a command in the pod's container and gives its output. New sets it; tests have their own.
	Exec func(ctx context.Context, command []string) (stdout, stderr []byte, err error)

	mu sync.Mutex // of At
}

// pod is the one that is asked now.
func (c *Controller) pod() cluster.Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.At
}

// returns is how long a pod that can be asked is looked for.
const returns = 30 * time.Second

// again reports whether a command can be run again: its pod is gone, so that it did not run, and another one is there.
func (c *Controller) again(ctx context.Context, err error) bool {
	gone := apierrors.IsNotFound(err) || slices.ContainsFunc([]string{"not found", "stopped state", "not running"},
		func(words string) bool { return strings.Contains(err.Error(), words) })
	var ended exited
	if c.Find == nil || !gone || errors.As(err, &ended) {
		return false
	}
	found := wait.PollUntilContextTimeout(ctx, time.Second, returns, true, func(ctx context.Context) (bool, error) {
		at, err := c.Find(ctx)
		if err != nil {
			return false, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.At = at
		return true, nil
	})
	return found == nil
}

// Ask runs a command with --output json, and reads its answer, which is one JSON document: an answer that ends early
// is none. answer may be nil.
func (c *Controller) Ask(ctx context.Context, answer any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := slices.Concat([]string{"/controller"}, args, []string{"--output", "json"})
	stdout, stderr, err := c.Exec(ctx, command)
	if err != nil && c.again(ctx, err) {
		stdout, stderr, err = c.Exec(ctx, command)
	}
	if err != nil {
		return c.explain(ctx, args, strings.TrimSpace(string(stderr)), err)
	}
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	if answer == nil {
		answer = &json.RawMessage{}
	}
	if err := decoder.Decode(answer); err != nil {
		return fmt.Errorf("%w: `controller %s` in pod %s/%s: %w; what was asked may be done all the same, so look "+
			"before you ask again", ErrCutOff, strings.Join(args, " "), c.pod().Namespace, c.pod().Pod, err)
	}
	return nil
}

// exited is an error of a command that has run.
type exited interface{ ExitStatus() int }

// explain says what to do about a command that has failed. The controller's own words come last in what it has said.
func (c *Controller) explain(ctx context.Context, args []string, said string, err error) error {
	at := c.pod()
	line := strings.TrimPrefix(said[strings.LastIndexByte(said, '\n')+1:], "controller: ")
	var ended exited
	older := slices.ContainsFunc([]string{"unknown command", "unknown flag", "unknown shorthand"},
		func(words string) bool { return strings.Contains(line, words) })
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w run commands in pod %s/%s (get and create of pods/exec): %w; the chart's value "+
			"adminRoles makes a ClusterRole that allows it", ErrForbidden, at.Namespace, at.Pod, err)
	case older:
		return fmt.Errorf("%w: it is %s, this is %s, and `controller %s` says: %s; update the older of the two",
			ErrVersion, at.Version, c.Version, strings.Join(args, " "), line)
	case errors.As(err, &ended):
		return fmt.Errorf("%w: %s", ErrRefused, line)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: pod %s/%s did not answer within %s: %w", ErrCutOff, at.Namespace, at.Pod, timeout,
			context.Cause(ctx))
	}
	return fmt.Errorf("run `controller %s` in pod %s/%s: %w", strings.Join(args, " "), at.Namespace, at.Pod, err)
}
