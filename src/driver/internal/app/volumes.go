package app

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func newVolume(stateDir *string) *cobra.Command {
	return group("volume", "Repair and give up single volumes of this node",
		newEnforce(stateDir), newAdopt(stateDir), newDiscard(stateDir))
}

func newEnforce(stateDir *string) *cobra.Command {
	var pool string
	command := &cobra.Command{
		Use:   "enforce {ID… | --pool NAME}",
		Short: "Enforce the sizes of volumes that were copied or restored",
		Long: "Make everything in a volume's directory count to the volume's ID again, and set its limit: for directories\n" +
			"that somebody copied or restored. No pod may use the volume meanwhile. With --pool alone, all volumes of the\n" +
			"pool are enforced that are not held to their sizes. The work can be stopped, and begun anew.",
		RunE: func(command *cobra.Command, ids []string) error {
			if pool == "" && len(ids) == 0 {
				return errors.New("which volumes? want their ids, or --pool")
			}
			shown := progress{out: command.OutOrStdout()}
			err := control.NewClient(*stateDir).Enforce(command.Context(), control.Selection{Pool: pool, IDs: ids}, shown.show)
			return errors.Join(err, shown.end())
		},
	}
	command.Flags().StringVar(&pool, "pool", "",
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
		Use:   "adopt ID",
		Short: "Print a PersistentVolume for a volume that none names",
		Long: "Print a PersistentVolume for a volume that none names, because its disk was moved to this node, or the\n" +
			"node renamed. A directory without a record gets one of the size given. Nothing else is changed.",
		Args: cobra.ExactArgs(1),
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
		Use:   "discard ID",
		Short: "Move a volume into the trash that no PersistentVolume names",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := control.NewClient(*stateDir).Discard(command.Context(), args[0], node); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "volume %s is in the trash\n", args[0])
			return err
		},
	}
	command.Flags().StringVar(&node, "pv-on", "", "the other node of the only PersistentVolume that may name the volume")
	return command
}
