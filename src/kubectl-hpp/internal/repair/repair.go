// Package repair has the commands that bring volumes back, give them up, and hold or measure them. A node does what
// concerns its disk, which the controller has it do; objects of the Kubernetes API are the user's to write.
package repair

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
)

// Errors of what was asked for.
var (
	// ErrAmbiguous is a name that more than one thing has.
	ErrAmbiguous = errors.New("say which one")
	// ErrNotFound is a name that nothing has.
	ErrNotFound = errors.New("not found")
	// ErrRefused is what would do harm.
	ErrRefused = errors.New("nothing was changed")
	// ErrHalfMade is what was begun, and has to be gone on with.
	ErrHalfMade = errors.New("it is half made")
	// ErrGoesOn is work that nobody waits for any more.
	ErrGoesOn = errors.New("the work goes on in the controller")
	// ErrSome is what was not done of what was asked for; the rest was.
	ErrSome = errors.New("not all was done")
	// ErrFailed is work that has not done all of what it was to do.
	ErrFailed = errors.New("the work has failed")
)

// Config is what the commands have.
type Config struct {
	genericclioptions.IOStreams
	API        func() (kubernetes.Interface, error)
	Controller func(ctx context.Context) (*remote.Controller, error)
	// Kubectl begins the commands that the user is to run, for the same cluster.
	Kubectl func() string
	// Namespace is that of claims that are named without one.
	Namespace func() (string, error)
	// Usage is why a command line is wrong.
	Usage error
	// Poll is how long is waited before work is asked about again.
	Poll time.Duration
}

// Commands are all of the package.
func Commands(c Config) []*cobra.Command {
	return []*cobra.Command{
		c.newUndelete(), c.newAdopt(), c.newDiscard(), c.newEnforce(), c.newMeasure(), c.newWork(),
		group("pool", "Say what became of a node's pool", c.newForget(), c.newTake()),
		group("node", "Give up what is on a node", c.newRelease()),
	}
}

func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(commands...)
	return command
}

// usage is an error of the command line.
func (c Config) usage(format string, values ...any) error {
	return fmt.Errorf("%w: %w", c.Usage, fmt.Errorf(format, values...))
}

// names wants one argument of a command, or with least 0 one that may be missing.
func (c Config) names(what string, least int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > 1 {
			return c.usage("%d names: want %s", len(args), what)
		}
		return nil
	}
}

// some wants one argument of a command or more.
func (c Config) some(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.usage("no names: want %s", what)
		}
		return nil
	}
}

// each does something about each of names until ctx ends, and says of which of several it failed.
func each(ctx context.Context, names []string, do func(name string) error) error {
	if len(names) == 1 {
		return do(names[0])
	}
	var failed []string
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := do(name); err != nil {
			failed = append(failed, "\n  "+name+": "+err.Error())
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%w: %d of %d:%s", ErrSome, len(failed), len(names), strings.Join(failed, ""))
	}
	return nil
}

// ask has the controller do something.
func (c Config) ask(ctx context.Context, answer any, args ...string) error {
	controller, err := c.Controller(ctx)
	if err != nil {
		return err
	}
	return controller.Ask(ctx, answer, args...)
}

// tell has the controller do something, and prints what it says.
func (c Config) tell(ctx context.Context, args ...string) error {
	var answer struct{ Message string }
	if err := c.ask(ctx, &answer, args...); err != nil {
		return err
	}
	return c.print(answer.Message)
}

func (c Config) print(line string) error {
	_, err := fmt.Fprintln(c.Out, line)
	return err
}

// claim is a claim's name with its namespace.
func (c Config) claim(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	namespace, err := c.Namespace()
	return namespace + "/" + name, err
}

// volumes gives those that are meant by claims or ids.
func (c Config) volumes(ctx context.Context, names []string) (found []nodeapi.VolumeStatus, err error) {
	var all []nodeapi.VolumeStatus
	if err := c.ask(ctx, &all, "volume", "list"); err != nil {
		return nil, err
	}
	for _, name := range names {
		v, err := c.volume(all, name)
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, nil
}

// volume gives the one that is meant by a claim or an id.
func (c Config) volume(all []nodeapi.VolumeStatus, name string) (v nodeapi.VolumeStatus, err error) {
	claim, err := c.claim(name)
	if err != nil {
		return v, err
	}
	var found []nodeapi.VolumeStatus
	for _, v := range all {
		if v.SnapshotOf == "" && (v.ID == name || v.Claim == claim) {
			found = append(found, v)
		}
	}
	// A claim that was made again has had another volume, which may be an orphan now.
	if bound := slices.DeleteFunc(slices.Clone(found), diagnosis.Orphaned); len(bound) == 1 {
		found = bound
	}
	switch len(found) {
	case 0:
		if slices.ContainsFunc(all, func(v nodeapi.VolumeStatus) bool { return v.ID == name }) {
			return v, fmt.Errorf("%w: %s is a snapshot: docs/runbooks/HostpathVolumesOrphaned.md#it-is-a-snapshot",
				ErrNotFound, name)
		}
		return v, fmt.Errorf("%w: no volume is named %s, and none is of a claim %s; `kubectl hpp get volumes` lists "+
			"them", ErrNotFound, name, claim)
	case 1:
		return found[0], nil
	}
	return v, fmt.Errorf("%w: %s means several volumes:%s", ErrAmbiguous, name, listed(found))
}

// listed names volumes, one a line.
func listed(all []nodeapi.VolumeStatus) string {
	var lines strings.Builder
	for _, v := range all {
		lines.WriteString("\n  " + v.ID + " on " + v.Node + ", pool " + v.Pool)
		if v.State != "" {
			lines.WriteString(", " + v.State)
		}
	}
	return lines.String()
}

// isTerminal reports whether a person is at the other end.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks a person; where there is none, the flag --yes has to say it.
func (c Config) confirm(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !isTerminal(c.In):
		return c.usage("%s Say --yes, as nobody can be asked here", question)
	}
	if _, err := fmt.Fprint(c.ErrOut, question+" Type yes: "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c.In).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return errors.Join(fmt.Errorf("%w: the answer was not yes", ErrRefused), err)
	}
	return nil
}
