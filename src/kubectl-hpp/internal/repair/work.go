package repair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
)

func (c Config) newWork() *cobra.Command {
	command := &cobra.Command{
		Use:   "work [ID]",
		Short: "Show long work of the controller, or wait for one",
		Args:  c.names("at most one id", 0),
		Long: "List the work that enforce and measure have begun and what came of it, for an hour after its end.\n" +
			"With an ID, wait for that to end. It is known in the pod of the controller in which it was begun,\n" +
			"until that restarts: then run the command again.",
		Example: "  kubectl hpp work\n  kubectl hpp work k3vq7a2m\n  kubectl hpp work cancel k3vq7a2m",
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) > 0 {
				_, err := c.follow(command.Context(), args)
				return err
			}
			var all []nodeapi.Work
			if err := c.ask(command.Context(), &all, "work"); err != nil {
				return err
			}
			return c.writeWork(all)
		},
	}
	command.AddCommand(&cobra.Command{
		Use: "cancel ID", Short: "End work before its time; what was done stays", Args: c.names("one id", 1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.tell(command.Context(), "work", "cancel", args[0])
		},
	})
	return command
}

func (c Config) writeWork(all []nodeapi.Work) error {
	table := tabwriter.NewWriter(c.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tVERB\tNODE\tWHAT\tTOOK\tSTATE\tDONE\tFAILED\tFILES")
	for _, w := range all {
		until, state := w.Ended, "done"
		switch {
		case w.Error != "":
			state = "ended early: " + w.Error
		case until.IsZero():
			until, state = time.Now(), "goes on"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", w.ID, w.Verb, w.Node, w.What,
			duration.HumanDuration(until.Sub(w.Started)), state, w.Done, w.Failed, w.Files)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the work: %w", err)
	}
	return nil
}

// patience is how often in a row a question about work may have no answer: it goes on meanwhile.
const patience = 5

// follow waits for work to end, and shows how far it is. It gives what has ended, and an error if some of it failed.
func (c Config) follow(ctx context.Context, ids []string) (ended []nodeapi.Work, err error) {
	controller, err := c.Controller(ctx) // the same pod is asked until the end
	if err != nil {
		return nil, err
	}
	shown := c.newProgress()
	defer shown.end()
	var troubles []error
	for _, id := range ids {
		w, err := c.await(ctx, controller, shown, id)
		if err != nil {
			return ended, err
		}
		ended = append(ended, w)
		troubles = append(troubles, outcome(w))
	}
	return ended, errors.Join(troubles...)
}

// outcome is what went wrong with work that has ended.
func outcome(w nodeapi.Work) error {
	if w.Error == "" && w.Failed == 0 {
		return nil
	}
	said := w.Errors
	if more := w.Failed - len(said); more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	if w.Error != "" {
		said = append(said, w.Error+"; what was done stays, so run the command again")
	}
	return fmt.Errorf("%w: %s on %s: %d volumes done, %d failed:\n  %s", ErrFailed, w.Verb, w.Node, w.Done, w.Failed,
		strings.Join(said, "\n  "))
}

// await asks for work until it has ended.
func (c Config) await(
	ctx context.Context, controller *remote.Controller, shown *progress, id string,
) (w nodeapi.Work, err error) {
	for missed := 0; ; {
		var all []nodeapi.Work
		switch err = controller.Ask(ctx, &all, "work", id); {
		case ctx.Err() != nil:
			return w, goesOn(id, nil)
		case errors.Is(err, remote.ErrRefused):
			return w, err
		case err != nil:
			if missed++; missed >= patience {
				return w, goesOn(id, err)
			}
		case len(all) != 1:
			return w, fmt.Errorf("%w: work %s: the controller has answered about %d", ErrNotFound, id, len(all))
		default:
			missed, w = 0, all[0]
			shown.show(w)
		}
		if !w.Ended.IsZero() {
			return w, nil
		}
		select {
		case <-ctx.Done():
			return w, goesOn(id, nil)
		case <-time.After(c.Poll):
		}
	}
}

func goesOn(id string, why error) error {
	err := fmt.Errorf("%w: look with `kubectl hpp work %s`, end it with `kubectl hpp work cancel %[2]s`", ErrGoesOn, id)
	if why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// progress is a line that changes on a terminal, else one for each volume.
type progress struct {
	c    Config
	bar  *progressbar.ProgressBar // nil without a terminal
	last string
}

func (c Config) newProgress() *progress {
	p := &progress{c: c}
	if isTerminal(c.ErrOut) {
		p.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(c.ErrOut), progressbar.OptionSpinnerType(14),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true))
	}
	return p
}

func (p *progress) show(w nodeapi.Work) {
	line := fmt.Sprintf("%s on %s: %d volumes done", w.Verb, w.Node, w.Done)
	if w.Failed > 0 {
		line += fmt.Sprintf(", %d failed", w.Failed)
	}
	switch {
	case p.bar != nil:
		line += fmt.Sprintf(", %d files", w.Files)
		if w.Verb == nodeapi.VerbMeasure {
			line += ", " + bytesize.Format(w.Bytes)
		}
		p.bar.Describe(line)
		_ = p.bar.Add(1) // nobody is told that the terminal is gone
	case line != p.last:
		p.last = line
		_, _ = fmt.Fprintln(p.c.ErrOut, line)
	}
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
