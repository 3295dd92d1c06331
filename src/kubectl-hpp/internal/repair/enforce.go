package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// selection is which volumes are worked on: some, or all of a pool or node.
type selection struct{ pool, node string }

func (s *selection) add(command *cobra.Command) {
	command.Flags().StringVar(&s.pool, "pool", "", "all volumes of a pool")
	command.Flags().StringVar(&s.node, "node", "", "all volumes of a node, or of its pool")
}

func (c Config) newEnforce() *cobra.Command {
	var of selection
	var inodes int64
	command := &cobra.Command{
		Use:   "enforce {CLAIM… | --pool NAME --node NODE} [--inodes N]",
		Short: "Hold volumes to their sizes that were copied or restored",
		Long: "Make everything in a volume's directory count to the volume again, and set its limit: for\n" +
			"directories that somebody copied or restored. No pod may use the volume meanwhile. With --pool, all\n" +
			"volumes of the pool are enforced that are not held to their sizes. --inodes sets how many files and\n" +
			"directories volumes may have, 0 for no limit; pods may use them meanwhile.\n" +
			"The work goes on in the controller when this command is interrupted: see `kubectl hpp work`.",
		Example: "  kubectl hpp enforce data-db-0 --namespace shop\n" +
			"  kubectl hpp enforce --pool nvme0 --node worker-2\n" +
			"  kubectl hpp enforce data-db-0 --inodes 2000000",
		RunE: func(command *cobra.Command, claims []string) error {
			ctx := command.Context()
			verb := []string{"volume", "enforce", "--background"}
			switch limited := command.Flags().Changed("inodes"); {
			case len(claims) > 0 && of != (selection{}):
				return c.usage("claims and --pool, --node: want the one or the other")
			case len(claims) == 0 && (of.pool == "" || of.node == ""):
				return c.usage("which volumes? Want claims, or --pool and --node")
			case limited && len(claims) == 0:
				return c.usage("--inodes: of which volumes? Want claims")
			case limited:
				verb = append(verb, fmt.Sprintf("--inodes=%d", inodes))
			}
			works, _, notBegun := c.start(ctx, verb, claims, of)
			if len(works) == 0 {
				return notBegun
			}
			_, err := c.follow(ctx, works)
			return errors.Join(notBegun, err)
		},
	}
	of.add(command)
	command.Flags().Int64Var(&inodes, "inodes", 0, "inode limit of the volumes, their roots included; 0 for none")
	return command
}

// start begins work on each node that has some of the claims' volumes, or on the one that is selected. It gives those
// volumes by their ids.
func (c Config) start(
	ctx context.Context, verb, claims []string, of selection,
) (works []string, volumes map[string]nodeapi.VolumeStatus, err error) {
	byNode := map[string][]string{}
	volumes = map[string]nodeapi.VolumeStatus{}
	if of.node != "" {
		byNode[of.node] = nil
	}
	if len(claims) > 0 {
		found, err := c.volumes(ctx, claims)
		if err != nil {
			return nil, nil, err
		}
		for _, v := range found {
			byNode[v.Node] = append(byNode[v.Node], v.ID)
			volumes[v.ID] = v
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		args := append(slices.Clone(verb), "--node", node)
		if of.pool != "" {
			args = append(args, "--pool", of.pool)
		}
		var begun struct{ Work string }
		if failure := c.ask(ctx, &begun, append(args, byNode[node]...)...); failure != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", node, failure))
			continue
		}
		works = append(works, begun.Work)
	}
	return works, volumes, err
}

func (c Config) newMeasure() *cobra.Command {
	var of selection
	command := &cobra.Command{
		Use:   "measure {CLAIM… | --node NODE [--pool NAME] | --pool NAME}",
		Short: "Count what volumes really take of the disk",
		Long: "Go through the directories of volumes, and count what is allocated to each file once: for pools\n" +
			"without quota, where nobody else counts it. It works a quarter of the time at most, so that the disk\n" +
			"is left to pods, which may use the volumes meanwhile; a million files take minutes.\n" +
			"The work goes on in the controller when this command is interrupted: see `kubectl hpp work`.",
		Example: "  kubectl hpp measure data-db-0 data-db-1 --namespace shop\n" +
			"  kubectl hpp measure --node worker-2\n" +
			"  kubectl hpp measure --pool local",
		RunE: func(command *cobra.Command, claims []string) error {
			ctx := command.Context()
			switch {
			case len(claims) > 0 && of != (selection{}):
				return c.usage("claims and --pool, --node: want the one or the other")
			case len(claims) == 0 && of == (selection{}):
				return c.usage("which volumes? Want claims, --node or --pool")
			}
			works, volumes, notBegun := c.measure(ctx, claims, of)
			if len(works) == 0 {
				return notBegun
			}
			ended, err := c.follow(ctx, works)
			if len(ended) > 0 {
				err = errors.Join(err, c.writeMeasured(ended, volumes))
			}
			return errors.Join(notBegun, err)
		},
	}
	of.add(command)
	return command
}

// measure begins the work, on all nodes that have the pool where no node is named.
func (c Config) measure(
	ctx context.Context, claims []string, of selection,
) (works []string, volumes map[string]nodeapi.VolumeStatus, err error) {
	verb := []string{"volume", "measure"}
	if len(claims) > 0 {
		return c.start(ctx, verb, claims, of)
	}
	var all []nodeapi.VolumeStatus
	if err := c.ask(ctx, &all, "volume", "list"); err != nil {
		return nil, nil, err
	}
	volumes, nodes := map[string]nodeapi.VolumeStatus{}, map[string]bool{}
	for _, v := range all {
		if v.SnapshotOf == "" && (of.node == "" || v.Node == of.node) && (of.pool == "" || v.Pool == of.pool) {
			volumes[v.ID] = v
			nodes[v.Node] = true
		}
	}
	if len(volumes) == 0 {
		return nil, nil, fmt.Errorf("%w: there are no such volumes to measure", ErrNotFound)
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		more, _, failure := c.start(ctx, verb, nil, selection{of.pool, node})
		works, err = append(works, more...), errors.Join(err, failure) // the other nodes can be measured
	}
	return works, volumes, err
}

// writeMeasured writes what volumes take, one line each.
func (c Config) writeMeasured(works []nodeapi.Work, volumes map[string]nodeapi.VolumeStatus) error {
	table := tabwriter.NewWriter(c.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "CLAIM\tNODE\tPOOL\tSIZE\tMEASURED\tFILES")
	for _, work := range works {
		for _, m := range work.Volumes {
			writeOne(table, work.Node, m, volumes[m.ID])
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	return nil
}

func writeOne(table io.Writer, node string, m nodeapi.VolumeWork, v nodeapi.VolumeStatus) {
	name, pool, size, measured, files := m.ID, "-", "-", "-", "-"
	if v.ID != "" {
		pool, size = v.Pool, bytesize.Format(v.Bytes)
	}
	if v.Claim != "" {
		name = v.Claim
	}
	if m.Done {
		measured, files = bytesize.Format(m.Bytes), fmt.Sprint(m.Files)
	}
	_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", name, node, pool, size, measured, files)
}
