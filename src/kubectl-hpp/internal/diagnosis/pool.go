package diagnosis

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// Severity is how grave a finding is.
type Severity int

// Severities, the gravest first. From Filling on, nothing fails because of it.
const (
	Unusable   Severity = iota + 1 // a node or pool serves nothing
	Damaged                        // data is missing, or cannot be used
	Limited                        // no new volumes, or nothing keeps them to their sizes
	Filling                        // soon it is worse
	Left                           // something is to be cleaned up
	Differing                      // versions
	Noteworthy                     // all else
)

// Finding is one thing about a node or one of its pools.
type Finding struct {
	Severity   Severity
	Reason     string // one word for each kind
	What, More string // in a few words, where the node and pool are named before it
	Message    string // one sentence; of a pool, where it is named before it
	Next       []string
}

// Answer is the finding for whoever asks for the node.
func (x Finding) Answer() say.Answer {
	return say.Answer{Reason: x.Reason, Wrong: x.Severity < Filling, Message: x.Message, Next: x.Next}
}

const (
	// nearlyFull is how much of a pool is free when that is said, in percent: the alert's default.
	nearlyFull = 10
	// overdue is for how long a deleted volume should be gone when that is said: the alert's default.
	overdue = time.Hour
)

// pool are the findings of a pool of a connected node.
func pool(f facts.Facts, n nodeapi.NodeStatus, p nodeapi.PoolStatus) []Finding {
	if p.State == nodeapi.StateNotSelected || f.NeverHere(p) {
		return nil
	}
	all := append(state(f, n, p), warnings(p)...)
	if p.Served() && p.Size > 0 && float64(p.Free)*100/float64(p.Size) < nearlyFull {
		free := fmt.Sprintf("%s of %s free", bytesize.Format(p.Free), bytesize.Format(p.Size))
		all = append(all, Finding{
			Severity: Filling, Reason: "PoolNearlyFull", What: "nearly full", More: free,
			Message: "nearly full: " + free + ".", Next: []string{"docs/runbooks/HostpathPoolNearlyFull.md"},
		})
	}
	if p.Served() && !p.TrashDue.IsZero() && f.Now.Sub(p.TrashDue) > overdue {
		all = append(all, Finding{
			Severity: Left, Reason: "TrashOverdue", What: "trash overdue" + f.Since(p.TrashDue),
			More:    "deleted volumes are not being removed",
			Message: "deleted volumes are not being removed, and should have been" + f.Since(p.TrashDue) + ".",
			Next:    []string{"docs/runbooks/HostpathTrashStuck.md"},
		})
	}
	for i := range all {
		all[i].What, all[i].Message = p.Name+" "+all[i].What, "Pool "+p.Name+": "+all[i].Message
	}
	return all
}

// state is what a pool's state says, nothing where it is as it should be.
func state(f facts.Facts, n nodeapi.NodeStatus, p nodeapi.PoolStatus) []Finding {
	x := Finding{More: p.Message}
	switch {
	case !p.Served():
		x.Severity, x.Reason, x.What, x.Next = Unusable, "PoolAbsent", p.State+f.Since(p.Since), MendPool(n.Name, p)
		x.Message = "absent: " + cmp.Or(p.Message, p.Reason, "it does not say why") + "."
	case facts.Hangs(n, p):
		x.Severity, x.Reason, x.What = Unusable, "PoolHangs", "does not answer"+f.Since(p.Seen)
		x.Message, x.Next = "its disk does not answer; its figures are old.",
			[]string{"docs/runbooks/HostpathPoolHangs.md"}
	case p.ReadOnly:
		x.Severity, x.Reason, x.What = Unusable, "PoolReadOnly", "read-only"+f.Since(p.Since)
		x.Message, x.Next = "its filesystem is read-only.", []string{"docs/runbooks/HostpathPoolReadOnly.md"}
	case p.EnforcementLost:
		x.Severity, x.Reason, x.What = Limited, "EnforcementLost", "no longer enforces sizes"
		x.Message = "nothing holds volumes to their sizes any more: " + p.EnforcementReason
	case p.Reason == nodeapi.ReasonNoNewVolumes:
		x.Severity, x.Reason, x.What, x.Message = Limited, p.Reason, "takes no new volumes", p.Message
	case p.State == nodeapi.StateNotConfigured:
		x.Severity, x.Reason, x.What = Noteworthy, "NotConfigured", "left the configuration"
		x.Message = "it left the configuration; what it has is served."
		x.Next = []string{fmt.Sprintf("Once it is empty and its disk is gone: kubectl hpp pool forget %s --node %s",
			p.Name, n.Name)}
	case p.Message != "":
		x.Severity, x.Reason, x.What, x.Message = Noteworthy, cmp.Or(p.Reason, "Says"), "has a problem", p.Message
	default:
		return nil
	}
	return []Finding{x}
}

// warnings are what a pool warns of.
func warnings(p nodeapi.PoolStatus) (all []Finding) {
	for _, w := range p.Warnings {
		if w.Reason == nodeapi.WarningQuotaChanged { // as it was asked to
			continue
		}
		x := Finding{
			Severity: Noteworthy, Reason: w.Reason, What: w.Reason, More: w.Message, Message: w.Message,
			Next: []string{"docs/reference/events.md has what to do about " + w.Reason + "."},
		}
		switch w.Reason {
		case nodeapi.WarningVolumeLost:
			x.Severity, x.What = Damaged, Count(p.Lost, "volume")+" lost"
		case nodeapi.WarningVolumeRefused:
			x.Severity, x.What = Damaged, Count(p.Refused, "volume")+" refused"
		case nodeapi.WarningVolumeNotEnforced:
			x.Severity, x.What = Limited, Count(p.Uncounted, "volume")+" not enforced"
		case nodeapi.WarningVolumesMissing:
			x.Severity, x.What = Damaged, "volumes missing"
		}
		all = append(all, x)
	}
	return all
}

// Count is "1 volume", "2 volumes".
func Count[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// MendPool is what to do about a pool that is absent on a node.
func MendPool(node string, p nodeapi.PoolStatus) []string {
	switch p.Reason {
	case nodeapi.ReasonNotChecked, "NodeUnknown", "ClusterUnknown", "Changing":
		return []string{"Wait some seconds, and look again."}
	case "OtherCluster":
		return []string{"docs/how-to/shared-pool.md#a-pool-of-another-cluster"}
	case "OtherPoolsDisk", "SameDirectory":
		return []string{fmt.Sprintf("Mount each pool's own disk at its path on node %s. Forget none of them.", node)}
	case "ClaimNotMounted":
		return []string{"kubectl get pods -A -l app.kubernetes.io/component=mounter -o wide"}
	case "QuotaUnavailable":
		return []string{"docs/how-to/use-a-disk.md, or give the pool quota: auto"}
	}
	return []string{
		fmt.Sprintf("Mount the pool's disk at %s on node %s.", p.Path, node),
		fmt.Sprintf("If the disk was replaced on purpose: kubectl hpp pool forget %s --node %s", p.Name, node),
	}
}
