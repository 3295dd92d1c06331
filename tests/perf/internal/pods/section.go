package pods

import (
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

// Section is the outcome as a table.
func (o Outcome) Section() report.Section {
	s := report.Section{
		Title: "Single pods",
		About: "From the creation of a pod until it runs, one after the other, with volumes that are there. From the " +
			"change of a claim, whose pod runs, until its capacity is the new one. From the power cut of a full node " +
			"until a pod's container runs anew.",
	}
	for _, name := range o.Names {
		s.Figures = append(s.Figures, two("pod with "+name+" runs", o.Started[name])...)
	}
	for _, name := range o.Names[1:] {
		s.Figures = append(s.Figures, report.Quotient(fmt.Sprintf("pod runs, %s / %s", o.Names[0], name),
			seconds(o.Started[o.Names[0]]), seconds(o.Started[name]), nil))
	}
	s.Figures = append(s.Figures, two("a volume has grown", o.Grown)...)
	for _, name := range []string{o.Names[0], EmptyDir} {
		what := fmt.Sprintf("pod with %s is back", name)
		s.Figures = append(s.Figures, two(what, o.Back[name])...)
	}
	return s
}

// two are the median and the tail of samples.
func two(what string, samples []time.Duration) []report.Figure {
	is := stat.Summarize(samples)
	figure := func(which string, value time.Duration) report.Figure {
		return report.Figure{
			Name: what + " " + which, Value: value.Seconds(), Unit: report.Seconds, Samples: is.N,
			NotMeasured: is.N == 0,
		}
	}
	return []report.Figure{figure("p50", is.P50), figure(is.TailName(), is.Tail)}
}

func seconds(all []time.Duration) (values []float64) {
	for _, d := range all {
		values = append(values, d.Seconds())
	}
	return values
}
