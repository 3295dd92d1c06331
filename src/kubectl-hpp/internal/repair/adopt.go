package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// adoption is how volumes are adopted.
type adoption struct {
	class, node, size string
	apply             bool
}

func (c Config) newAdopt() *cobra.Command {
	var a adoption
	command := &cobra.Command{
		Use: "adopt {ID|CLAIM}…", Short: "Make PersistentVolumes and claims for volumes that none names",
		Args: c.some("volumes: their ids, or the claims that they were made for"),
		Long: "Print a PersistentVolume, and the claim that it was made for, for each volume that none names: its\n" +
			"disk was moved to the node, the node renamed, the cluster made anew, or the volume given up. With\n" +
			"--apply create both, with your rights. A directory without a record is named with --node, and gets\n" +
			"one of --size.",
		Example: "  kubectl hpp adopt data-db-0 --namespace shop --apply\n" +
			"  kubectl hpp adopt old-data --node worker-2 --size 10Gi --class local\n" +
			"  # All that no PersistentVolume names, after the cluster was made anew\n" +
			"  kubectl hpp adopt --apply $(kubectl hpp get volumes -A --state orphan -o name)",
		RunE: func(command *cobra.Command, names []string) error {
			ctx := command.Context()
			var known []nodeapi.VolumeStatus
			if err := c.ask(ctx, &known, "volume", "list"); err != nil {
				return err
			}
			known = slices.DeleteFunc(known, func(v nodeapi.VolumeStatus) bool {
				return a.node != "" && v.Node != a.node
			})
			var all []object
			err := each(ctx, names, func(name string) error {
				left, err := c.adopt(ctx, a, known, name)
				all = append(all, left...)
				return err
			})
			return errors.Join(err, c.write(all))
		},
	}
	addManifestFlags(command, &a.class, &a.node, &a.apply)
	command.Flags().StringVar(&a.size, "size", "", "size of a directory that has no record, such as 10Gi")
	return command
}

// adopt adopts one volume, and gives the manifests that are not created.
func (c Config) adopt(
	ctx context.Context, a adoption, known []nodeapi.VolumeStatus, name string,
) (left []object, err error) {
	v, err := c.adoptable(a, known, name)
	if err == nil && a.apply {
		err = c.mayCreate(ctx, v.Claim, v.ID)
	}
	if err == nil {
		a.class, err = c.class(ctx, a.class, v.Pool)
	}
	if err != nil {
		return nil, err
	}
	asked := []string{"volume", "adopt", v.ID, "--node", v.Node, "--storage-class", a.class}
	if a.size != "" {
		asked = append(asked, "--size", a.size)
	}
	return c.manifests(ctx, a.apply, v.Node, v.ID, asked...)
}

// adoptable finds a volume, or on a node that is named takes it for a directory there without a record.
func (c Config) adoptable(a adoption, known []nodeapi.VolumeStatus, name string) (v nodeapi.VolumeStatus, err error) {
	v, err = c.volume(known, name)
	switch {
	case !errors.Is(err, ErrNotFound):
		return v, err
	case a.node == "":
		return v, fmt.Errorf("%w; a directory without a record is found with --node", err)
	case a.class == "":
		return v, c.usage("no volume %s is known on %s: name its StorageClass with --class", name, a.node)
	}
	return nodeapi.VolumeStatus{ID: name, Node: a.node}, nil
}
