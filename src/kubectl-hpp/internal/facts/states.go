package facts

import (
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// States of a volume by which volumes are chosen. What a row says of its volume may be longer.
const (
	OK               = "ok"
	Orphan           = "orphan"             // nothing in Kubernetes names it
	Lost             = "lost"               // its record, or its PersistentVolume, has no directory
	Refused          = "refused"            // its record or directory cannot be used
	NotEnforced      = "not-enforced"       // others of its pool are held to their sizes, and it is not
	NodeNotConnected = "node-not-connected" // so nobody knows
	PoolAbsent       = "pool-absent"        // its disk is away, or not selected or configured
	Copying          = "copying"            // it is a copy that is being made, or was interrupted
	Moving           = "moving"             // to another node
	Snapshot         = "snapshot"
	Unknown          = "unknown" // the controller was not asked, or its node did not answer
)

// States are all values of State.
func States() []string {
	return []string{
		OK, Orphan, Lost, Refused, NotEnforced, NodeNotConnected, PoolAbsent, Copying, Moving,
		Snapshot, Unknown,
	}
}

// StateOf is the state that the controller's words mean.
func StateOf(said string) string {
	switch {
	case said == "":
		return OK
	case strings.HasPrefix(said, "orphan"):
		return Orphan
	case said == "not found":
		return Lost
	case said == "node not connected":
		return NodeNotConnected
	case strings.HasPrefix(said, "pool "):
		return PoolAbsent
	case strings.HasPrefix(said, "snapshot of "):
		return Snapshot
	case said == nodeapi.MovingAway:
		return Moving
	case said == nodeapi.NotWhole, strings.Contains(said, "copied"), strings.Contains(said, "copy"):
		return Copying
	}
	return Unknown
}
