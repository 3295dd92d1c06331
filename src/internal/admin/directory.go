package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func newDirectory(stateDir *string) *cobra.Command {
	return group("directory", "Take a directory of a node as a volume, or return it: what `kubectl hpp migrate` does",
		newLook(stateDir), newTakeDirectory(stateDir), newReturn(stateDir))
}

func newLook(stateDir *string) *cobra.Command {
	var q wire.LookDirectoryRequest
	command := onNode(&cobra.Command{
		Use: "look PATH --pool NAME", Args: cobra.ExactArgs(1),
		Short: "Say whether a directory of a node can become a volume; nothing is changed",
		RunE: func(command *cobra.Command, args []string) error {
			q.Path = args[0]
			ask := func(ctx context.Context) (nodeapi.Directory, error) {
				answer, err := call(ctx, *stateDir, &q, wire.AdminClient.LookDirectory)
				return wire.ToDirectory(answer), err
			}
			return show(command, ask, writeDirectory)
		},
	}, &q.Node)
	command.Flags().StringVar(&q.Pool, "pool", "", "the pool that it is to be taken into")
	_ = command.MarkFlagRequired("pool")
	return command
}

func writeDirectory(w io.Writer, d nodeapi.Directory) error {
	more := ""
	if d.Partial {
		more = " or more"
	}
	said := []string{fmt.Sprintf("%s: %d files, %s%s, %s", d.Path, d.Files, bytesize.Format(d.Bytes), more, d.FSType)}
	if d.UsedAt != "" {
		said = append(said, "in use: mounted at "+d.UsedAt)
	}
	if d.Exists && !d.Enforceable {
		said = append(said, "its size would not be enforced: "+d.EnforcementReason)
	}
	_, err := fmt.Fprintln(w, strings.Join(append(said, d.Problems...), "\n"))
	return err
}

func newTakeDirectory(stateDir *string) *cobra.Command {
	var q wire.TakeDirectoryRequest
	var size, claim string
	var group int64
	command := onNode(&cobra.Command{
		Use: "take ID --path PATH --pool NAME --size SIZE", Args: cobra.ExactArgs(1),
		Short: "Make a directory of a node a volume, by renaming it",
		Long: "Make a directory of a node a volume of a pool on the same mount, by renaming it. Nothing may use it.\n" +
			"Asked again, it goes on with what was interrupted, and says how far the enforcement of its size is.",
		RunE: func(command *cobra.Command, args []string) (err error) {
			q.Id = args[0]
			if q.Bytes, err = poolspec.ParseBytes(size); err != nil {
				return fmt.Errorf("--size: %w", err)
			}
			q.ClaimNamespace, q.ClaimName, _ = strings.Cut(claim, "/")
			if claim != "" && q.GetClaimName() == "" {
				return errors.New("--claim: want namespace/name")
			}
			if command.Flags().Changed("fs-group") {
				q.FsGroup = &group
			}
			ask := func(ctx context.Context) (nodeapi.TakenDirectory, error) {
				answer, err := call(ctx, *stateDir, &q, wire.AdminClient.TakeDirectory)
				return wire.ToTaken(answer), err
			}
			return show(command, ask, writeTaken)
		},
	}, &q.Node)
	flags := command.Flags()
	flags.StringVar(&q.Path, "path", "", "the directory on the node")
	flags.StringVar(&q.Pool, "pool", "", "the pool that it is taken into")
	flags.StringVar(&size, "size", "", "the volume's size, such as 10Gi")
	flags.StringVar(&claim, "claim", "", "namespace/name of its claim, for information")
	flags.Int64Var(&group, "fs-group", 0, "fsGroup of its pods: its root gets it, so that nothing below is changed")
	flags.StringVar(&q.Enforce, "enforce", nodeapi.EnforceNow, "when it is held to its size: now (before a pod gets "+
		"it), later (controller volume enforce), never")
	for _, required := range []string{"path", "pool", "size"} {
		_ = command.MarkFlagRequired(required)
	}
	return command
}

func writeTaken(w io.Writer, t nodeapi.TakenDirectory) error {
	is := "enforcement " + t.Enforcement
	switch {
	case t.Failed != "":
		is = "its enforcement failed: " + t.Failed
	case t.Enforcing:
		is = fmt.Sprintf("%d files are counted so far; no pod gets it before all are", t.Files)
	case t.Reason != "":
		is = "not enforced: " + t.Reason
	}
	_, err := fmt.Fprintf(w, "%s is volume %s of %s in pool %s: %s\n", t.Path, t.ID, bytesize.Format(t.Bytes), t.Pool,
		is)
	return err
}

func newReturn(stateDir *string) *cobra.Command {
	var q wire.ReturnDirectoryRequest
	return onNode(&cobra.Command{
		Use: "return ID", Args: cobra.ExactArgs(1), Short: "Move a volume back to the directory that it was taken from",
		Long: "Move a volume back to the directory that it was taken from. No pod may use it, and no\n" +
			"PersistentVolume name it. Ask again until it says that it is done.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Id = args[0]
			ask := func(ctx context.Context) (nodeapi.ReturnedDirectory, error) {
				answer, err := call(ctx, *stateDir, &q, wire.AdminClient.ReturnDirectory)
				return wire.ToReturned(answer), err
			}
			return show(command, ask, writeReturned)
		},
	}, &q.Node)
}

func writeReturned(w io.Writer, r nodeapi.ReturnedDirectory) error {
	said := fmt.Sprintf("%s is at %s again", r.ID, r.Path)
	switch {
	case !r.Done:
		said = fmt.Sprintf("%d files of %s do not count to it any more; ask again until all do not", r.Files, r.ID)
	case r.Path == "":
		said = fmt.Sprintf("there is no volume %s: nothing is left to do", r.ID)
	}
	_, err := fmt.Fprintln(w, said)
	return err
}
