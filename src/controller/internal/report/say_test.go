package report

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestWhatAPoolIs, in an event and in the condition of a pod.
func TestWhatAPoolIs(t *testing.T) {
	t.Parallel()
	of := func(state, reason, message string, change func(*nodeapi.PoolStatus)) nodeapi.PoolStatus {
		is := nodeapi.PoolStatus{
			Name: "local", Path: "/p", State: state, Reason: reason, Message: message, Configured: true,
			Enforcement: "strict",
		}
		if change != nil {
			change(&is)
		}
		return is
	}
	const present, absent = nodeapi.StatePresent, nodeapi.StateAbsent
	for name, c := range map[string]struct {
		is               nodeapi.PoolStatus
		event, condition string
	}{
		"present": {
			of(present, "", "", nil), "Normal PoolPresent: /p can be used; enforcement of sizes: strict",
			"True PoolPresent: /p can be used; enforcement of sizes: strict",
		},
		"plain": {
			of(present, "", "", func(is *nodeapi.PoolStatus) {
				is.Enforcement, is.EnforcementReason = "none", "quota is off"
			}),
			"Normal PoolPresent: /p can be used; enforcement of sizes: none, because quota is off",
			"True PoolPresent: /p can be used; enforcement of sizes: none",
		},
		"absent": {
			of(absent, "PathMissing", "mount it", nil), "Warning PoolAbsent: PathMissing: mount it",
			"False PoolAbsent: PathMissing: mount it",
		},
		"not selected": {
			of(nodeapi.StateNotSelected, nodeapi.ReasonNotSelected, "no label", nil), "",
			"False PoolNotSelected: no label",
		},
		"labels unknown": {
			of(nodeapi.StateNotSelected, "NodeUnknown", "waiting", nil), "Warning PoolAbsent: NodeUnknown: waiting",
			"False PoolAbsent: NodeUnknown: waiting",
		},
		"not looked at": {of(absent, nodeapi.ReasonNotChecked, "", nil), "", ""},
		"read-only": {
			of(present, nodeapi.ReasonReadOnly, "see the log", func(is *nodeapi.PoolStatus) { is.ReadOnly = true }),
			"Warning PoolReadOnly: see the log", "True PoolDegraded: /p can be used, but see the log",
		},
		"quota off": {
			of(present, nodeapi.ReasonEnforcementLost, "nothing keeps", func(is *nodeapi.PoolStatus) {
				is.EnforcementLost, is.EnforcementReason = true, "it is off"
			}),
			"Warning EnforcementLost: nothing keeps volumes to their size any more: it is off",
			"True PoolDegraded: /p can be used, but nothing keeps",
		},
		"no new volumes": {
			of(present, nodeapi.ReasonNoNewVolumes, "full", nil),
			"Normal PoolPresent: /p can be used; enforcement of sizes: strict",
			"True PoolDegraded: /p: its volumes are served, and none can be made: full",
		},
		"not configured": {
			of(nodeapi.StateNotConfigured, nodeapi.ReasonNotConfigured, "it is served", func(is *nodeapi.PoolStatus) {
				is.Configured = false
			}),
			"Warning PoolNotConfigured: it is served", "",
		},
	} {
		kind, reason, message := eventOf(c.is)
		event := kind + " " + reason + ": " + message
		if reason == "" {
			event = ""
		}
		said := ""
		for _, is := range conditions([]nodeapi.PoolStatus{c.is}) {
			said = string(is.Status) + " " + is.Reason + ": " + is.Message
		}
		if event != c.event || said != c.condition {
			t.Errorf("%s: event\n%q, want\n%q; condition\n%q, want\n%q", name, event, c.event, said, c.condition)
		}
	}
	if all := conditions(nil); all != nil {
		t.Errorf("a node that has said nothing: %v", all)
	}
	if all := conditions([]nodeapi.PoolStatus{}); all == nil {
		t.Error("a node without pools keeps the conditions that it had")
	}
}
