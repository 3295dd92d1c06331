package wire

import "time"

const (
	// PingAfter is after what silence both ends ask for a sign of life; gRPC's clients take no less than 10 s.
	PingAfter = 10 * time.Second
	// PingTimeout is how long they wait for it.
	PingTimeout = 5 * time.Second
	// StopGrace is how long calls under way may take when one end stops.
	StopGrace = 5 * time.Second
	// MaxUpdate bounds one message of a session, in bytes; some hundred pools are less.
	MaxUpdate = 64 << 10
	// HandlingKey is the trailer with the time that a call took on the node, in nanoseconds.
	HandlingKey = "hpp-handling-ns"
)

// FeatureVolumes is what a node has that answers Find and Volumes, FeatureShared one that takes Share, FeatureSince one
// that writes nothing in Kubernetes, so that events and conditions are the controller's to make of what it says,
// FeatureCopy one that serves Copies, and FeatureMove one that volumes can be moved from and to.
const (
	FeatureVolumes = "volumes"
	FeatureShared  = "shared"
	FeatureSince   = "since"
	FeatureCopy    = "copy"
	FeatureMove    = "move"
)
