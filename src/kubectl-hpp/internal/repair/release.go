package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

func (c Config) newRelease() *cobra.Command {
	var apply bool
	command := &cobra.Command{
		Use:   "release NODE",
		Short: "Give up the volumes of a node that is lost",
		Args:  c.names("one node", 1),
		Long: "Show the PersistentVolumes whose data is on a node that is not connected, and the claims that lose\n" +
			"it. With --apply say on each of them that it is given up, with your rights: once its claim is deleted,\n" +
			"the PersistentVolume goes at once, although nobody can delete the data. Nothing happens to one whose\n" +
			"claim stays, so this can be done before the claims are deleted.",
		Example: "  kubectl hpp node release worker-2\n  kubectl hpp node release worker-2 --apply",
		RunE: func(command *cobra.Command, args []string) error {
			return c.release(command.Context(), args[0], apply)
		},
	}
	command.Flags().BoolVar(&apply, "apply", false, "annotate the PersistentVolumes")
	return command
}

func (c Config) release(ctx context.Context, node string, apply bool) error {
	controller, err := c.Controller(ctx)
	if err != nil {
		return err
	}
	var status nodeapi.Status
	if err := controller.Ask(ctx, &status, "status"); err != nil {
		return err
	}
	if slices.ContainsFunc(status.Nodes, func(n nodeapi.NodeStatus) bool {
		return n.Name == node && n.State == facts.Connected
	}) {
		return fmt.Errorf("%w: node %s is connected, so deleting a claim deletes its data there as usual", ErrRefused,
			node)
	}
	api, err := c.API()
	if err != nil {
		return err
	}
	all, err := api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list PersistentVolumes: %w", err)
	}
	on := slices.DeleteFunc(all.Items, func(pv corev1.PersistentVolume) bool {
		return !isOn(pv, controller.At, node)
	})
	if len(on) == 0 {
		return c.print(
			"no PersistentVolume of " + controller.At.Driver + " is on node " + node + ": nothing is to be done",
		)
	}
	if err := c.writeLost(on); err != nil {
		return err
	}
	if !apply {
		return c.print("\nNothing was changed. --apply gives them up.")
	}
	return c.annotate(ctx, api, on, names.ReleaseVolume(controller.At.Driver), node)
}

// isOn reports whether a PersistentVolume of a driver is on a node, and on no other.
func isOn(pv corev1.PersistentVolume, driver cluster.Controller, node string) bool {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver.Driver || pv.Spec.NodeAffinity == nil ||
		pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	here := func(e corev1.NodeSelectorRequirement) bool {
		return (driver.TopologyKey == "" || e.Key == driver.TopologyKey) && slices.Equal(e.Values, []string{node})
	}
	return len(terms) == 1 && slices.ContainsFunc(terms[0].MatchExpressions, here)
}

// writeLost writes which claims lose their data, and what becomes of the PersistentVolumes.
func (c Config) writeLost(all []corev1.PersistentVolume) error {
	table := tabwriter.NewWriter(c.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "PV\tCLAIM\tPHASE\tSIZE\tWHEN THE CLAIM IS DELETED")
	for _, pv := range all {
		claim, then := "-", "the PersistentVolume goes"
		if ref := pv.Spec.ClaimRef; ref != nil {
			claim = ref.Namespace + "/" + ref.Name
		}
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			then = "the PersistentVolume stays (Retain) until you delete it"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", pv.Name, claim, pv.Status.Phase,
			bytesize.Format(pv.Spec.Capacity.Storage().Value()), then)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the PersistentVolumes: %w", err)
	}
	return nil
}

// annotate gives PersistentVolumes up. One that is gone meanwhile needs no more.
func (c Config) annotate(
	ctx context.Context, api kubernetes.Interface, all []corev1.PersistentVolume, key, node string,
) error {
	patch, err := json.Marshal(object{"metadata": object{"annotations": object{key: node}}})
	if err != nil {
		return err
	}
	var troubles []error
	for _, pv := range all {
		_, err := api.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			troubles = append(troubles, fmt.Errorf("annotate PersistentVolume %s: %w", pv.Name, err))
		}
	}
	if len(troubles) > 0 {
		return fmt.Errorf("%d of %d PersistentVolumes are given up; run the command again: %w",
			len(all)-len(troubles), len(all), errors.Join(troubles...))
	}
	return c.print(fmt.Sprintf("\n%d PersistentVolumes are given up: each goes with its claim.%s", len(all),
		c.deletions(all)))
}

// deletions are the commands that delete the claims of PersistentVolumes, one for each namespace.
func (c Config) deletions(all []corev1.PersistentVolume) string {
	claims := map[string]string{}
	for _, pv := range all {
		if ref := pv.Spec.ClaimRef; ref != nil && pv.Status.Phase == corev1.VolumeBound {
			claims[ref.Namespace] += " " + ref.Name
		}
	}
	if len(claims) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString(" Now delete the claims whose data is lost:\n")
	for _, namespace := range slices.Sorted(maps.Keys(claims)) {
		fmt.Fprintf(&text, "\n%s delete pvc --namespace %s%s", c.Kubectl(), namespace, claims[namespace])
	}
	return text.String()
}
