package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/table"
)

func (p *plugin) status() *cobra.Command {
	output := ""
	formats := []string{table.Table, table.JSON, table.YAML}
	c := &cobra.Command{
		Use: "status", Short: "Show in a few lines how the installation is, and what is wrong",
		Long: "Show in two lines what there is, and below it a line that begins with ! for each thing that is\n" +
			"wrong, the gravest first. A thing that is wrong does not change the exit code.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := table.Check(output, formats...); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			f, err := p.list(c.Context(), "", askStatus, askVolumes, askTrash)
			if err == nil && f.ControllerPods == nil {
				err = p.readPods(c.Context(), &f)
			}
			if err == nil {
				err = p.readResources(c.Context(), &f)
			}
			if err != nil {
				return err
			}
			sum := inventory.Summarize(f, buildinfo.Version())
			if output != table.Table {
				return table.Document(p.Out, output, sum)
			}
			return p.writeSummary(sum)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", table.Table, strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (p *plugin) writeSummary(sum inventory.Summary) error {
	or := func(text string) string { return cmp.Or(text, "-") }
	trash := or(table.Count(sum.Trash))
	if sum.TrashBytes != nil && *sum.TrashBytes > 0 {
		trash += " (" + table.Bytes(sum.TrashBytes) + ")"
	}
	_, err := fmt.Fprintf(p.Out, "%s%s\nNODES %s/%d  POOLS %s/%s  VOLUMES %d  PROMISED %s of %s  TRASH %s\n",
		strings.TrimSpace(sum.Driver+" "+sum.Version), within(sum.Namespace), or(table.Count(sum.Connected)), sum.Nodes,
		or(table.Count(sum.Present)), or(table.Count(sum.Pools)), sum.Volumes, or(table.Bytes(sum.Promised)),
		or(table.Bytes(sum.Size)), trash)
	if err != nil {
		return err
	}
	paint := table.PaintFor(p.Out)
	if len(sum.Problems) == 0 && sum.Connected != nil {
		_, err = fmt.Fprintln(p.Out, paint.Green("All is well."))
		return err
	}
	if err := p.writeProblems(sum.Problems, paint); err != nil || sum.Connected != nil {
		return err
	}
	unknown := "Whether something is wrong is not known: the controller did not answer."
	if sum.Pools != nil || len(sum.Problems) > 0 {
		unknown = "Nothing but the state of pools and claims is known: the controller did not answer."
	}
	_, err = fmt.Fprintln(p.Out, paint.Yellow(unknown))
	return err
}

func (p *plugin) writeProblems(problems []inventory.Problem, paint table.Paint) error {
	var lines [][]string
	for _, problem := range problems {
		lines = append(lines, []string{problem.About, problem.What, problem.More})
	}
	var text strings.Builder
	if err := table.Lines(&text, lines); err != nil {
		return err
	}
	for i, line := range slices.Collect(strings.Lines(text.String())) {
		mark := paint.Yellow("!")
		if problems[i].Severity <= diagnosis.Damaged {
			mark = paint.Red("!")
		}
		if _, err := fmt.Fprintf(p.Out, "%s %s\n", mark, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func within(namespace string) string {
	if namespace == "" {
		return ""
	}
	return ", in namespace " + namespace
}
