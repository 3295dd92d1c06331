package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
)

func (c Config) newUndelete() *cobra.Command {
	var class, node string
	var apply bool
	command := &cobra.Command{
		Use:   "undelete {ENTRY|ID|CLAIM}",
		Short: "Bring a deleted volume back from the trash",
		Args:  c.names("one deleted volume: its entry of the trash, its id, or its claim", 1),
		Long: "Bring a deleted volume back on its node, and print its PersistentVolume and claim; with --apply\n" +
			"create both, with your rights. `kubectl hpp get trash` shows what can be brought back. The\n" +
			"PersistentVolume's reclaim policy is Retain: nothing deletes the data a second time by mistake.",
		Example: "  kubectl hpp undelete data-db-0 --namespace shop --apply\n" +
			"  kubectl hpp undelete pvc-0b9a2f6e.1795430400 > manifests.yaml",
		RunE: func(command *cobra.Command, args []string) error {
			ctx := command.Context()
			v, err := c.deleted(ctx, args[0], node)
			if err != nil {
				return err
			}
			if apply {
				if err := c.mayCreate(ctx, v.Claim, v.ID); err != nil {
					return err
				}
			}
			if class, err = c.class(ctx, class, v.Pool); err != nil {
				return err
			}
			left, err := c.manifests(ctx, apply, v.Node, v.ID,
				"volume", "undelete", v.Entry, "--node", v.Node, "--storage-class", class)
			return errors.Join(err, c.write(left))
		},
	}
	addManifestFlags(command, &class, &node, &apply)
	return command
}

func addManifestFlags(command *cobra.Command, class, node *string, apply *bool) {
	command.Flags().StringVar(class, "class", "",
		"StorageClass of the PersistentVolume and the claim; empty for the driver's only one of the pool")
	command.Flags().StringVar(node, "node", "", "the node that has it, where several do")
	command.Flags().BoolVar(apply, "apply", false, "create the PersistentVolume and the claim")
}

// deleted gives the deleted volume that is meant by an entry, an id or a claim.
func (c Config) deleted(ctx context.Context, name, node string) (v nodeapi.DeletedVolume, err error) {
	var all []nodeapi.DeletedVolume
	if err := c.ask(ctx, &all, "volume", "list", "--deleted"); err != nil {
		return v, err
	}
	claim, err := c.claim(name)
	if err != nil {
		return v, err
	}
	var found []nodeapi.DeletedVolume
	var silent []string
	for _, v := range all {
		switch {
		case v.Entry == "":
			silent = append(silent, v.State)
		case node != "" && v.Node != node:
		case v.Entry == name, v.ID == name, v.Claim == claim:
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		err = fmt.Errorf("%w: no trash has an entry or a volume %s, or one of a claim %s", ErrNotFound, name, claim)
		if len(silent) > 0 {
			err = fmt.Errorf("%w; not all nodes have answered: %s", err, strings.Join(silent, "; "))
		}
		return v, c.broughtBack(ctx, name, err)
	case 1:
		return found[0], nil
	}
	slices.SortFunc(found, func(a, b nodeapi.DeletedVolume) int { return b.Deleted.Compare(a.Deleted) })
	var lines strings.Builder
	for _, v := range found {
		fmt.Fprintf(&lines, "\n  %s on %s, deleted %s", v.Entry, v.Node, v.Deleted.UTC().Format(time.RFC3339))
	}
	return v, fmt.Errorf(
		"%w: %s means several deleted volumes; name one by its entry:%s",
		ErrAmbiguous,
		name,
		lines.String(),
	)
}

// broughtBack adds to why there is no deleted volume that it was brought back without --apply, if that is so.
func (c Config) broughtBack(ctx context.Context, name string, why error) error {
	all, err := c.volumes(ctx, []string{name})
	if err != nil || !diagnosis.Adoptable(all[0]) {
		return why
	}
	return fmt.Errorf("%w; but volume %s is on node %s, without a PersistentVolume: kubectl hpp adopt %[2]s --node "+
		"%[3]s --apply", why, all[0].ID, all[0].Node)
}

// class is the StorageClass that a volume gets: the one that was named, or the driver's only one of its pool.
func (c Config) class(ctx context.Context, named, pool string) (string, error) {
	if named != "" {
		return named, nil
	}
	controller, err := c.Controller(ctx)
	if err != nil {
		return "", err
	}
	api, err := c.API()
	if err != nil {
		return "", err
	}
	classes, err := api.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list StorageClasses to find that of pool %s; or name it with --class: %w", pool, err)
	}
	var fitting []string
	for _, class := range classes.Items {
		if class.Provisioner == controller.At.Driver && means(class.Parameters[names.StoragePoolParameter], pool) {
			fitting = append(fitting, class.Name)
		}
	}
	switch len(fitting) {
	case 0:
		return "", c.usage("no StorageClass of %s names pool %s; say with --class what the volume gets",
			controller.At.Driver, pool)
	case 1:
		return fitting[0], nil
	}
	return "", c.usage("several StorageClasses are of pool %s; say which: --class %s", pool,
		strings.Join(fitting, ", or --class "))
}

// means reports whether a class that names pools means this one.
func means(named, pool string) bool {
	if named == "" {
		named = names.LegacyPool
	}
	if !poolspec.Several(named) {
		return named == pool
	}
	for item := range strings.SplitSeq(named, ",") {
		if prefix, many := strings.CutSuffix(item, "*"); item == pool || many && strings.HasPrefix(pool, prefix) {
			return true
		}
	}
	return false
}
