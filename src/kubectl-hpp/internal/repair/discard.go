package repair

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// discarding is how volumes are discarded.
type discarding struct {
	node, other string
	yes         bool
}

func (c Config) newDiscard() *cobra.Command {
	var d discarding
	command := &cobra.Command{
		Use:   "discard ID…",
		Short: "Move volumes that no PersistentVolume names into the trash",
		Args:  c.some("the ids of volumes"),
		Long: "Move orphans into the trash of their pools, from which `kubectl hpp undelete` brings them back until\n" +
			"they are purged. A volume that a PersistentVolume names is refused: delete its claim instead.",
		Example: "  kubectl hpp discard pvc-0b9a2f6e pvc-77c1d0aa --yes",
		RunE: func(command *cobra.Command, names []string) error {
			return c.discard(command.Context(), names, d)
		},
	}
	command.Flags().StringVar(&d.node, "node", "", "the node that has the volumes, if they are not found")
	command.Flags().StringVar(&d.other, "pv-on", "",
		"the other node of the only PersistentVolume that may name the volume")
	command.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	return command
}

func (c Config) discard(ctx context.Context, names []string, d discarding) error {
	var known, meant []nodeapi.VolumeStatus
	if d.node == "" {
		if err := c.ask(ctx, &known, "volume", "list"); err != nil {
			return err
		}
	}
	volumes, unknown := map[string]nodeapi.VolumeStatus{}, map[string]error{}
	for _, name := range names {
		v, err := nodeapi.VolumeStatus{ID: name, Node: d.node}, error(nil)
		if d.node == "" {
			v, err = c.volume(known, name)
		}
		if unknown[name] = err; err == nil {
			volumes[name], meant = v, append(meant, v)
		}
	}
	if len(meant) > 0 {
		if err := c.confirm(d.yes, question(meant)); err != nil {
			return err
		}
	}
	return each(ctx, names, func(name string) error {
		if unknown[name] != nil {
			return unknown[name]
		}
		asked := []string{"volume", "discard", volumes[name].ID, "--node", volumes[name].Node}
		if d.other != "" {
			asked = append(asked, "--pv-on", d.other)
		}
		return c.tell(ctx, asked...)
	})
}

const noTrash = "Where a pool keeps no trash, nothing brings it back."

// question says what is discarded.
func question(all []nodeapi.VolumeStatus) string {
	if len(all) == 1 {
		return fmt.Sprintf("Volume %s on node %s goes into the trash. %s", all[0].ID, all[0].Node, noTrash)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d volumes go into the trash:", len(all))
	for _, v := range all {
		text.WriteString("\n  " + v.ID + " on node " + v.Node)
		if v.Claim != "" {
			text.WriteString(", made for " + v.Claim)
		}
	}
	return text.String() + "\n" + noTrash
}
