// Package admin is how an administrator asks a running driver: the commands, what they print, and the calls on a unix
// socket that only the driver's user may open. Only that one process touches the pools or knows the nodes.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Commands are clients of the driver whose state is in a directory.
func Commands(stateDir *string) []*cobra.Command {
	return []*cobra.Command{
		newStatus(stateDir), newMove(stateDir),
		group("pool", "Change what a node knows of a pool", newForget(stateDir), newTake(stateDir)),
		group("volume", "List volumes; repair and give up single ones of a node",
			newList(stateDir), newEnforce(stateDir), newAdopt(stateDir), newDiscard(stateDir), newUndelete(stateDir)),
	}
}

func newStatus(stateDir *string) *cobra.Command {
	ask := func(ctx context.Context) (nodeapi.Status, error) {
		answer, err := call(ctx, *stateDir, &wire.StatusRequest{}, wire.AdminClient.Status)
		return wire.ToStatus(answer), err
	}
	return showing("status", "Show the pools of this node, or in the controller those of all nodes", ask,
		func(w io.Writer, s nodeapi.Status) error { return WriteTable(w, s, time.Now()) })
}

func newList(stateDir *string) *cobra.Command {
	ask := func(ctx context.Context) ([]nodeapi.VolumeStatus, error) { return Volumes(ctx, *stateDir) }
	command := showing("list", "List the volumes of this node, or in the controller those of all nodes", ask,
		WriteVolumes)
	deleted := command.Flags().Bool("deleted", false, "list what is in the trash, and can be undeleted, instead")
	volumes := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if !*deleted {
			return volumes(command, args)
		}
		ask := func(ctx context.Context) ([]nodeapi.DeletedVolume, error) { return Deleted(ctx, *stateDir) }
		return show(command, ask, func(w io.Writer, all []nodeapi.DeletedVolume) error {
			return WriteDeleted(w, all, time.Now())
		})
	}
	return command
}

// showing is a command that asks for something and shows it.
func showing[T any](
	name, short string, ask func(context.Context) (T, error), table func(io.Writer, T) error,
) *cobra.Command {
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return show(command, ask, table) },
	}
	command.Flags().StringP("output", "o", "table", "table or json")
	return command
}

// show asks for something and shows it as the flag says.
func show[T any](
	command *cobra.Command, ask func(context.Context) (T, error), table func(io.Writer, T) error,
) error {
	output, err := command.Flags().GetString("output")
	if err == nil && output != "table" && output != "json" {
		err = fmt.Errorf("--output: %q: want table or json", output)
	}
	if err != nil {
		return err
	}
	answer, err := ask(command.Context())
	if err != nil {
		return err
	}
	if output == "table" {
		return table(command.OutOrStdout(), answer)
	}
	encoder := json.NewEncoder(command.OutOrStdout())
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}

// group is a command that only has others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(commands...)
	return command
}

// onNode gives a command a flag for the node that does its work.
func onNode(command *cobra.Command, node *string) *cobra.Command {
	command.Flags().StringVar(node, "node", "", "the node that does it; required in the controller")
	return command
}

func newForget(stateDir *string) *cobra.Command {
	var q wire.ForgetPoolRequest
	return onNode(&cobra.Command{
		Use: "forget NAME", Short: "Forget the identity of an absent pool", Args: cobra.ExactArgs(1),
		Long: "Forget the identity of a pool that is absent, because its disk was replaced on purpose or because\n" +
			"it was taken out of the configuration for good. A configured pool is then adopted anew with what is\n" +
			"at its path; volumes that were on the old disk are gone for this node. That is noted of a pool that\n" +
			"this node never had, too: PersistentVolumes that name it can then be deleted.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Pool = args[0]
			answer, err := call(command.Context(), *stateDir, &q, wire.AdminClient.ForgetPool)
			said := "pool %s is forgotten on %s\n"
			if !answer.GetKnown() {
				said = "pool %s was never used on %s; it is noted that its volumes are gone\n"
			}
			return say(command, err, said, q.GetPool(), cmp.Or(q.GetNode(), "this node"))
		},
	}, &q.Node)
}

// say prints what was done, unless there was an error.
func say(command *cobra.Command, err error, format string, values ...any) error {
	if err == nil {
		_, err = fmt.Fprintf(command.OutOrStdout(), format, values...)
	}
	return err
}

func newTake(stateDir *string) *cobra.Command {
	var q wire.TakePoolRequest
	command := onNode(&cobra.Command{
		Use: "take NAME --from OWNER", Short: "Take a shared pool from a cluster that is gone",
		Args: cobra.ExactArgs(1),
		Long: "Make a shared pool this cluster's that belongs to another one, because that one is gone or was built\n" +
			"anew. OWNER is the UID of the other cluster's namespace kube-system, as the pool's message says it.\n" +
			"Where the other cluster is still there, its nodes find the pool absent from then on, and its pods\n" +
			"lose their volumes.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Pool = args[0]
			_, err := call(command.Context(), *stateDir, &q, wire.AdminClient.TakePool)
			return say(command, err, "pool %s is this cluster's now\n", q.GetPool())
		},
	}, &q.Node)
	command.Flags().StringVar(&q.From, "from", "",
		"UID of the namespace kube-system of the cluster that it belongs to")
	_ = command.MarkFlagRequired("from")
	return command
}

func newEnforce(stateDir *string) *cobra.Command {
	var q wire.EnforceRequest
	var inodes int64
	command := onNode(&cobra.Command{
		Use:   "enforce {ID… [--inodes N] | --pool NAME}",
		Short: "Enforce the sizes of volumes that were copied or restored",
		Long: "Make everything in a volume's directory count to the volume's ID again, and set its limit: for\n" +
			"directories that somebody copied or restored. No pod may use the volume meanwhile. With --pool alone,\n" +
			"all volumes of the pool are enforced that are not held to their sizes. The work can be stopped, and\n" +
			"begun anew.\n" +
			"--inodes sets how many files and directories volumes may have; pods may use them meanwhile.",
		RunE: func(command *cobra.Command, ids []string) error {
			limit := command.Flags().Changed("inodes")
			switch {
			case limit && len(ids) == 0:
				return errors.New("--inodes: of which volumes? want their ids")
			case q.GetPool() == "" && len(ids) == 0:
				return errors.New("which volumes? want their ids, or --pool")
			case limit:
				q.Inodes = &inodes
			}
			q.Ids = ids
			shown := progress{out: command.OutOrStdout()}
			err := Enforce(command.Context(), *stateDir, &q, shown.show)
			return errors.Join(err, shown.end())
		},
	}, &q.Node)
	command.Flags().Int64Var(&inodes, "inodes", 0, "inode limit of the volumes, their roots included; 0 for none")
	command.Flags().StringVar(&q.Pool, "pool", "",
		"all volumes of this pool that are not held to their sizes; with ids: the pool that they must be in")
	return command
}

// progress writes a line for each step of an enforcement.
type progress struct {
	out          io.Writer
	done, failed int
	err          error // of writing
}

func (p *progress) show(step *wire.Progress) {
	said := fmt.Sprintf("%d files counted", step.GetFiles())
	switch {
	case step.GetError() != "":
		p.failed++
		said = "not enforced: " + step.GetError()
	case step.GetDone():
		p.done++
		said = fmt.Sprintf("enforced, %d files", step.GetFiles())
	}
	_, err := fmt.Fprintf(p.out, "%s: %s\n", step.GetId(), said)
	p.err = errors.Join(p.err, err)
}

func (p *progress) end() error {
	_, err := fmt.Fprintf(p.out, "%d volumes enforced\n", p.done)
	if p.failed > 0 {
		return fmt.Errorf("%d volumes could not be enforced", p.failed)
	}
	return errors.Join(p.err, err)
}

func newAdopt(stateDir *string) *cobra.Command {
	var size, storageClass string
	var q wire.AdoptRequest
	command := onNode(&cobra.Command{
		Use: "adopt ID", Short: "Print a PersistentVolume for a volume that none names", Args: cobra.ExactArgs(1),
		Long: "Print a PersistentVolume for a volume that none names, because its disk was moved to the node, or\n" +
			"the node renamed. A directory without a record gets one of the size given. Nothing else is changed.",
		RunE: func(command *cobra.Command, args []string) (err error) {
			q.Id = args[0]
			if size != "" {
				if q.Bytes, err = poolspec.ParseBytes(size); err != nil {
					return fmt.Errorf("--size: %w", err)
				}
				if q.GetBytes() <= 0 {
					return fmt.Errorf("--size: %q: want more than 0 bytes, such as 10Gi", size)
				}
			}
			answer, err := call(command.Context(), *stateDir, &q, wire.AdminClient.Adopt)
			if err != nil {
				return err
			}
			manifest, err := yaml.Marshal(persistentVolume(answer, storageClass))
			return say(command, err, "%s", manifest)
		},
	}, &q.Node)
	command.Flags().StringVar(&size, "size", "", "size of a volume that has no record, such as 10Gi")
	command.Flags().StringVar(&storageClass, "storage-class", "", "the PersistentVolume's storageClassName")
	return command
}

func newDiscard(stateDir *string) *cobra.Command {
	var q wire.DiscardRequest
	command := onNode(&cobra.Command{
		Use: "discard ID", Args: cobra.ExactArgs(1),
		Short: "Move a volume into the trash that no PersistentVolume names",
		RunE: func(command *cobra.Command, args []string) error {
			q.Id = args[0]
			_, err := call(command.Context(), *stateDir, &q, wire.AdminClient.Discard)
			return say(command, err, "volume %s is in the trash\n", q.GetId())
		},
	}, &q.Node)
	command.Flags().StringVar(&q.PvOn, "pv-on", "",
		"the other node of the only PersistentVolume that may name the volume")
	return command
}

func newUndelete(stateDir *string) *cobra.Command {
	var storageClass string
	var q wire.UndeleteRequest
	command := onNode(&cobra.Command{
		Use: "undelete ENTRY", Short: "Bring a deleted volume back from the trash", Args: cobra.ExactArgs(1),
		Long: "Bring a deleted volume back from the trash, and print a PersistentVolume and a claim for it.\n" +
			"ENTRY is what `volume list --deleted` shows.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Entry = args[0]
			answer, err := call(command.Context(), *stateDir, &q, wire.AdminClient.Undelete)
			if err != nil {
				return err
			}
			manifest, err := yaml.Marshal(persistentVolume(answer, storageClass))
			var claim []byte
			if err == nil && answer.GetVolume().GetClaimName() != "" {
				claim, err = yaml.Marshal(claimOf(answer, storageClass))
				claim = append([]byte("---\n"), claim...)
			}
			return say(command, err, "%s%s", manifest, claim)
		},
	}, &q.Node)
	command.Flags().StringVar(&storageClass, "storage-class", "", "the storageClassName of both")
	return command
}
