package app

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func newForget(stateDir *string) *cobra.Command {
	return &cobra.Command{
		Use: "forget NAME", Short: "Forget the identity of an absent pool", Args: cobra.ExactArgs(1),
		Long: "Forget the identity of a pool that is absent, because its disk was replaced on purpose or because\n" +
			"it was taken out of the configuration for good. A configured pool is then adopted anew with what is\n" +
			"at its path; volumes that were on the old disk are gone for this node. That is noted of a pool that\n" +
			"this node never had, too: PersistentVolumes that name it can then be deleted.",
		RunE: func(command *cobra.Command, args []string) error {
			known, err := control.NewClient(*stateDir).Forget(command.Context(), args[0])
			if err != nil {
				return err
			}
			said := "is forgotten on this node"
			if !known {
				said = "was never used on this node; it is noted that its volumes are gone"
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "pool %s %s\n", args[0], said)
			return err
		},
	}
}

func newTake(stateDir *string) *cobra.Command {
	var from string
	command := &cobra.Command{
		Use: "take NAME --from OWNER", Short: "Take a shared pool from a cluster that is gone",
		Args: cobra.ExactArgs(1),
		Long: "Make a shared pool this cluster's that belongs to another one, because that one is gone or was built\n" +
			"anew. OWNER is the UID of the other cluster's namespace kube-system, as the pool's message says it.\n" +
			"Where the other cluster is still there, its nodes find the pool absent from then on, and its pods\n" +
			"lose their volumes.",
		RunE: func(command *cobra.Command, args []string) error {
			if err := control.NewClient(*stateDir).Take(command.Context(), args[0], from); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "pool %s is this cluster's now\n", args[0])
			return err
		},
	}
	command.Flags().StringVar(&from, "from", "", "UID of the namespace kube-system of the cluster that it belongs to")
	_ = command.MarkFlagRequired("from")
	return command
}

func newEnforce(stateDir *string) *cobra.Command {
	var wanted control.Selection
	var inodes int64
	command := &cobra.Command{
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
			case wanted.Pool == "" && len(ids) == 0:
				return errors.New("which volumes? want their ids, or --pool")
			case limit:
				wanted.Inodes = &inodes
			}
			wanted.IDs = ids
			shown := progress{out: command.OutOrStdout()}
			err := control.NewClient(*stateDir).Enforce(command.Context(), wanted, shown.show)
			return errors.Join(err, shown.end())
		},
	}
	command.Flags().Int64Var(&inodes, "inodes", 0, "inode limit of the volumes, their roots included; 0 for none")
	command.Flags().StringVar(&wanted.Pool, "pool", "",
		"all volumes of this pool that are not held to their sizes; with ids: the pool that they must be in")
	return command
}

// progress writes a line for each step of an enforcement.
type progress struct {
	out          io.Writer
	done, failed int
	err          error // of writing
}

func (p *progress) show(step control.Progress) {
	said := fmt.Sprintf("%d files counted", step.Files)
	switch {
	case step.Error != "":
		p.failed++
		said = "not enforced: " + step.Error
	case step.Done:
		p.done++
		said = fmt.Sprintf("enforced, %d files", step.Files)
	}
	_, err := fmt.Fprintf(p.out, "%s: %s\n", step.ID, said)
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
	var size string
	var wanted control.Adoption
	command := &cobra.Command{
		Use: "adopt ID", Short: "Print a PersistentVolume for a volume that none names", Args: cobra.ExactArgs(1),
		Long: "Print a PersistentVolume for a volume that none names, because its disk was moved to this node, or\n" +
			"the node renamed. A directory without a record gets one of the size given. Nothing else is changed.",
		RunE: func(command *cobra.Command, args []string) (err error) {
			if size != "" {
				if wanted.Bytes, err = poolspec.ParseBytes(size); err != nil {
					return fmt.Errorf("--size: %w", err)
				}
			}
			manifest, err := control.NewClient(*stateDir).Adopt(command.Context(), args[0], wanted)
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(manifest)
			return err
		},
	}
	command.Flags().StringVar(&size, "size", "", "size of a volume that has no record, such as 10Gi")
	command.Flags().StringVar(&wanted.StorageClass, "storage-class", "", "the PersistentVolume's storageClassName")
	return command
}

func newDiscard(stateDir *string) *cobra.Command {
	var node string
	command := &cobra.Command{
		Use: "discard ID", Args: cobra.ExactArgs(1),
		Short: "Move a volume into the trash that no PersistentVolume names",
		RunE: func(command *cobra.Command, args []string) error {
			if err := control.NewClient(*stateDir).Discard(command.Context(), args[0], node); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "volume %s is in the trash\n", args[0])
			return err
		},
	}
	command.Flags().StringVar(&node, "pv-on", "",
		"the other node of the only PersistentVolume that may name the volume")
	return command
}
