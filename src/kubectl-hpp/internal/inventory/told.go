package inventory

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// told are the pools as the controller tells of them on the driver's pods, for whoever may not ask it. Of a controller
// that is away they are old.
func told(f facts.Facts) (all []Pool) {
	if f.Answered() || f.Away != "" {
		return nil
	}
	for _, pod := range f.DriverPods {
		for _, c := range pod.Status.Conditions {
			if name, is := strings.CutPrefix(string(c.Type), names.PoolCondition); is {
				all = append(all, ofCondition(pod.Spec.NodeName, name, c))
			}
		}
	}
	return all
}

func ofCondition(node, pool string, c corev1.PodCondition) Pool {
	row := Pool{
		Node: node, Name: pool, State: facts.Unknown, Message: abridge.Printable(c.Message),
		Since: c.LastTransitionTime.Time,
	}
	switch c.Reason {
	case names.PoolPresent:
		row.State, row.Message = nodeapi.StatePresent, ""
	case names.PoolDegraded:
		row.State = degraded
	case names.PoolAbsent:
		row.State = nodeapi.StateAbsent
	case names.PoolNotSelected:
		row.State = nodeapi.StateNotSelected
	}
	return row
}

// told adds how many pools there are, and what is wrong with them, without the controller.
func (sum *Summary) told(f facts.Facts) {
	var present, pools int64
	for _, p := range told(f) {
		if p.State == nodeapi.StateNotSelected {
			continue
		}
		pools++
		severity, served := map[string]diagnosis.Severity{nodeapi.StatePresent: 0, degraded: diagnosis.Limited}[p.State]
		if served {
			present++
		} else {
			severity = diagnosis.Unusable
		}
		if severity > 0 {
			what := p.Name + " " + strings.TrimPrefix(p.State, nodeapi.StatePresent+", ") + f.Since(p.Since)
			sum.Problems = append(sum.Problems, Problem{severity, p.Node, what, p.Message})
		}
	}
	if pools > 0 {
		sum.Present, sum.Pools = &present, &pools
	}
}
