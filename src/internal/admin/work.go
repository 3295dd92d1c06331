package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// working is a command whose work takes long, and what it asks for once its flags are read.
type working struct {
	*cobra.Command
	start func(ids []string) (*wire.StartWorkRequest, error)
}

func newEnforce(stateDir *string) working {
	var q wire.EnforceRequest
	var inodes int64
	w := working{Command: onNode(&cobra.Command{
		Use:   "enforce {ID… [--inodes N] | --pool NAME}",
		Short: "Enforce the sizes of volumes that were copied or restored",
		Long: "Make everything in a volume's directory count to the volume's ID again, and set its limit: for\n" +
			"directories that somebody copied or restored. No pod may use the volume meanwhile. With --pool alone,\n" +
			"all volumes of the pool are enforced that are not held to their sizes. The work can be stopped, and\n" +
			"begun anew.\n" +
			"--inodes sets how many files and directories volumes may have; pods may use them meanwhile.",
	}, &q.Node)}
	w.start = func(ids []string) (*wire.StartWorkRequest, error) {
		limit := w.Flags().Changed("inodes")
		switch {
		case limit && len(ids) == 0:
			return nil, errors.New("--inodes: of which volumes? want their ids")
		case q.GetPool() == "" && len(ids) == 0:
			return nil, errors.New("which volumes? want their ids, or --pool")
		case limit:
			q.Inodes = &inodes
		}
		q.Ids = ids
		return &wire.StartWorkRequest{Work: &wire.StartWorkRequest_Enforce{Enforce: &q}}, nil
	}
	w.RunE = func(command *cobra.Command, ids []string) error {
		if _, err := w.start(ids); err != nil {
			return err
		}
		p := progress{verb: "enforced"}
		return p.run(command, func(ctx context.Context) error {
			return stream(ctx, *stateDir, &q, wire.AdminClient.Enforce, p.show)
		})
	}
	w.Flags().Int64Var(&inodes, "inodes", 0, "inode limit of the volumes, their roots included; 0 for none")
	w.Flags().StringVar(&q.Pool, "pool", "",
		"all volumes of this pool that are not held to their sizes; with ids: the pool that they must be in")
	return w
}

func newMeasure(stateDir *string) working {
	var q wire.MeasureRequest
	w := working{Command: onNode(&cobra.Command{
		Use:   "measure [ID…] [--pool NAME]",
		Short: "Count what volumes really take of the disk",
		Long: "Go through the directories of volumes, of all of a pool, or of all of the node, and count what is\n" +
			"allocated to each file once: where no quota counts it. It works a quarter of the time at most, so that\n" +
			"the disk is left to pods, which may use the volumes meanwhile.",
	}, &q.Node)}
	w.start = func(ids []string) (*wire.StartWorkRequest, error) {
		q.Ids = ids
		return &wire.StartWorkRequest{Work: &wire.StartWorkRequest_Measure{Measure: &q}}, nil
	}
	w.RunE = func(command *cobra.Command, ids []string) error {
		q.Ids = ids
		p := progress{verb: "measured"}
		return p.run(command, func(ctx context.Context) error {
			return stream(ctx, *stateDir, &q, wire.AdminClient.Measure, p.show)
		})
	}
	w.Flags().StringVar(&q.Pool, "pool", "",
		"all volumes of this pool; with ids: the pool that they must be in")
	return w
}

// progress writes a line for each step, or at the end one JSON document.
type progress struct {
	verb  string
	out   io.Writer // nil for JSON
	tally nodeapi.Tally
	err   error // of writing
}

func (p *progress) run(command *cobra.Command, work func(ctx context.Context) error) error {
	asJSON, err := inJSON(command)
	if err != nil {
		return err
	}
	if p.tally.Verb = command.Name(); !asJSON {
		p.out = command.OutOrStdout()
	}
	if err = work(command.Context()); err == nil && asJSON {
		err = writeJSON(command.OutOrStdout(), p.tally.Work)
	} else if p.out != nil {
		_, failure := fmt.Fprintf(p.out, "%d volumes %s\n", p.tally.Done, p.verb)
		err = errors.Join(err, p.err, failure)
	}
	if p.tally.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d volumes could not be %s", p.tally.Failed, p.verb))
	}
	return err
}

func (p *progress) show(step *wire.Progress) {
	p.tally.Take(wire.ToVolumeWork(step), "")
	said := fmt.Sprintf("%d files counted", step.GetFiles())
	switch {
	case step.GetError() != "":
		said = "not " + p.verb + ": " + step.GetError()
	case step.GetDone() && p.verb == "measured":
		said = fmt.Sprintf("%s, %d files", bytesize.Format(step.GetBytes()), step.GetFiles())
	case step.GetDone():
		said = fmt.Sprintf("%s, %d files", p.verb, step.GetFiles())
	}
	if p.out != nil {
		_, err := fmt.Fprintf(p.out, "%s: %s\n", step.GetId(), said)
		p.err = errors.Join(p.err, err)
	}
}

// begun is the answer of a command that has begun work.
type begun struct {
	Work    string `json:"work"`
	Running bool   `json:"running,omitempty"` // it was under way already
}

// begin has the controller do it, and says by which id it can be asked about.
func begin(stateDir *string, w working, ids []string) error {
	q, err := w.start(ids)
	if err != nil {
		return err
	}
	ask := func(ctx context.Context) (begun, error) {
		answer, err := call(ctx, *stateDir, q, wire.AdminClient.StartWork)
		return begun{answer.GetId(), answer.GetRunning()}, err
	}
	return show(w.Command, ask, func(w io.Writer, b begun) error {
		said := "work %s has begun; controller work %[1]s shows how far it is\n"
		if b.Running {
			said = "work %s is under way already; controller work %[1]s shows how far it is\n"
		}
		_, err := fmt.Fprintf(w, said, b.Work)
		return err
	})
}

// inBackground lets the work go on in the controller if a flag says so.
func inBackground(stateDir *string, w working) working {
	foreground := w.RunE
	background := w.Flags().Bool("background", false, "begin the work, and do not wait for it: see `controller work`")
	w.RunE = func(command *cobra.Command, ids []string) error {
		if !*background {
			return foreground(command, ids)
		}
		return begin(stateDir, w, ids)
	}
	return w
}

// startMeasure is measuring in the controller, which nobody waits for.
func startMeasure(stateDir *string) working {
	w := newMeasure(stateDir)
	w.Long += "\nIt is work that goes on in the controller: see `controller work`."
	w.RunE = func(_ *cobra.Command, ids []string) error { return begin(stateDir, w, ids) }
	return w
}

func newWork(stateDir *string) *cobra.Command {
	command := shown(&cobra.Command{
		Use: "work [ID]", Short: "Show work that was begun in this controller, or what came of one",
		Args: cobra.MaximumNArgs(1),
		Long: "Show work that goes on in this process of the controller, or has ended within the last hour. Other\n" +
			"replicas have their own, and a restart ends it: then begin it anew.",
		RunE: func(command *cobra.Command, args []string) error {
			q := &wire.WorksRequest{}
			if len(args) > 0 {
				q.Id = args[0]
			}
			ask := func(ctx context.Context) ([]nodeapi.Work, error) {
				return listing(ctx, *stateDir, q, wire.AdminClient.Works, wire.ToWork)
			}
			return show(command, ask, func(w io.Writer, all []nodeapi.Work) error {
				return WriteWork(w, all, time.Now())
			})
		},
	})
	command.AddCommand(shown(&cobra.Command{
		Use: "cancel ID", Short: "End work before its time; what was done stays", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return tell(command, func(ctx context.Context) (string, error) {
				_, err := call(ctx, *stateDir, &wire.CancelWorkRequest{Id: args[0]}, wire.AdminClient.CancelWork)
				return fmt.Sprintf("work %s is cancelled", args[0]), err
			})
		},
	}))
	return command
}

// WriteWork writes work for a person, one line each, and below it what has failed.
func WriteWork(w io.Writer, all []nodeapi.Work, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tVERB\tNODE\tWHAT\tSTARTED\tSTATE\tDONE\tFAILED\tFILES\tBYTES")
	for _, work := range all {
		state, bytes := "goes on", "-"
		switch {
		case work.Error != "":
			state = "ended early " + ago(work.Ended, now)
		case !work.Ended.IsZero():
			state = "done after " + duration.HumanDuration(work.Ended.Sub(work.Started))
		}
		if work.Verb == nodeapi.VerbMeasure {
			bytes = bytesize.Format(work.Bytes)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", work.ID, work.Verb, work.Node, work.What,
			ago(work.Started, now), state, work.Done, work.Failed, work.Files, bytes)
	}
	for _, work := range all {
		for _, message := range work.Errors {
			fmt.Fprintf(table, "\n%s: %s\n", work.ID, message)
		}
		if work.Error != "" {
			fmt.Fprintf(table, "\n%s: %s\n", work.ID, work.Error)
		}
	}
	return flush(table, "work")
}
