package nodeapi

import "time"

// States of a pool.
const (
	StatePresent       = "present"
	StateAbsent        = "absent"
	StateNotSelected   = "not selected"   // the node's labels do not match, and it never used the pool
	StateNotConfigured = "not configured" // it left the configuration: what it has is served, nothing new is made
)

// PoolStatus is a pool of a node as everybody shows it: metrics, health, `driver status` and the controller. It comes
// from memory: a pool that hangs keeps nobody waiting. Sizes are in bytes.
type PoolStatus struct {
	Name       string `json:"name"`
	Path       string `json:"path"`
	State      string `json:"state"`
	Selected   bool   `json:"selected"` // this node makes new volumes in the pool
	Used       bool   `json:"used"`     // this node has used the pool before, whatever the configuration says now
	Configured bool   `json:"-"`
	// Reason and Message say why the pool cannot be used, or, where it is present, what is wrong with it and what to
	// do.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ID is that of the marker; "" where the pool is absent.
	ID          string `json:"id,omitempty"`
	Backend     string `json:"backend,omitempty"`
	Enforcement string `json:"enforcement,omitempty"`
	// EnforcementLost reports that volumes were made here while a quota was on that is off now.
	EnforcementLost bool `json:"enforcementLost,omitempty"`
	// EnforcementReason says why nothing is enforced and what to do about it; "" where something is.
	EnforcementReason string `json:"enforcementReason,omitempty"`
	ReadOnly          bool   `json:"readOnly,omitempty"`
	Inline            bool   `json:"inline"`
	Shared            bool   `json:"shared,omitempty"` // its volumes are on all nodes
	// Waiting reports that a shared pool could be used if the node knew its id; NodeDirs are the other nodes that have
	// something of their own there.
	Waiting  bool     `json:"-"`
	NodeDirs []string `json:"-"`
	// WithOS reports whether the pool is on a filesystem of the operating system; nil where that cannot be seen.
	WithOS *bool `json:"withOS,omitempty"`
	// Seen is when the disk was last looked at.
	Seen time.Time `json:"seen,omitzero"`
	// Since is the node's time at which State, Reason, ID, Enforcement, EnforcementLost or ReadOnly last changed, at
	// the earliest the start of its driver.
	Since    time.Time `json:"since,omitzero"`
	Warnings []Warning `json:"warnings,omitempty"`

	Size         int64     `json:"size"`
	Free         int64     `json:"free"`
	Promised     int64     `json:"promised"`
	Growable     int64     `json:"-"`           // what volumes may grow by
	Allocatable  int64     `json:"allocatable"` // largest new volume
	Volumes      int       `json:"volumes"`
	Lost         int       `json:"lost"`
	Refused      int       `json:"refused"`
	Uncounted    int       `json:"uncounted"`
	Untracked    int       `json:"untracked"` // directories without a record
	TrashEntries int       `json:"trash"`
	OldestTrash  time.Time `json:"oldestTrash,omitzero"`
	TrashDue     time.Time `json:"trashDue,omitzero"` // since when a deleted volume should be gone and is not
	Reserve      int64     `json:"reserve"`           // bytes that volumes are never promised
}

// Served reports whether the pool can be used for the volumes that it has.
func (p PoolStatus) Served() bool { return p.State == StatePresent || p.State == StateNotConfigured }

// Warning is what somebody should know of a present pool, for as long as it is so.
type Warning struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Volumes are the ids it is about, at most MaxWarned, sorted. Message says how many more there are.
	Volumes []string `json:"volumes,omitempty"`
	// Since is the node's time at which this reason first appeared with these volumes.
	Since time.Time `json:"since,omitzero"`
}

// DeletedVolume is a volume in the trash that can be brought back.
type DeletedVolume struct {
	Entry   string    `json:"entry,omitempty"` // its name in the trash; "" where State says why nothing is known
	Node    string    `json:"node"`
	ID      string    `json:"id,omitempty"`
	Pool    string    `json:"pool,omitempty"`
	Claim   string    `json:"claim,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`
	Deleted time.Time `json:"deleted,omitzero"`
	Due     time.Time `json:"due,omitzero"` // when it is purged; zero: never
	State   string    `json:"state,omitempty"`
}

// MaxWarned is how many volumes a warning names at most.
const MaxWarned = 10

// Status is what the pools of a node are, or in the controller those of all nodes.
type Status struct {
	Driver  string       `json:"driver"`
	Version string       `json:"version"`
	Node    string       `json:"node,omitempty"` // "" in the controller
	Pools   []PoolStatus `json:"pools"`
	Nodes   []NodeStatus `json:"nodes,omitempty"`
}

// NodeStatus is a node as the controller sees it.
type NodeStatus struct {
	Name string `json:"name"`
	// State is "connected" or "not connected", Since when it is connected, and Seen when the node was last heard of.
	State   string       `json:"state"`
	Version string       `json:"version,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	Seen    time.Time    `json:"seen,omitzero"`
	Message string       `json:"message,omitempty"`
	Pools   []PoolStatus `json:"pools,omitempty"`
}

// VolumeStatus is a volume of a node, or a snapshot. Sizes are in bytes.
type VolumeStatus struct {
	ID          string `json:"id"`
	Pool        string `json:"pool"`
	Claim       string `json:"claim,omitempty"` // namespace/name; of an inline volume the pod's
	Bytes       int64  `json:"bytes"`
	Held        int64  `json:"held,omitempty"` // promised beside Bytes, for what copies of it keep
	Used        int64  `json:"used"`           // -1 where that is not known
	Enforcement string `json:"enforcement,omitempty"`
	SnapshotOf  string `json:"snapshotOf,omitempty"` // the volume
	// Created is to the second.
	Created   time.Time `json:"created,omitzero"`
	Ephemeral bool      `json:"-"` // an inline volume
	Published bool      `json:"-"` // mounted anywhere on its node
	Copying   string    `json:"-"` // of a copy that is being made: how far it is; else NotWhole until it is whole

	// What whoever lists it adds: where it is, and what is unusual about it, such as "orphan".
	Node  string `json:"node"`
	PV    string `json:"pv,omitempty"`
	State string `json:"state,omitempty"`
}

// NotWhole is a copy that was interrupted: it is gone on with when it is asked for again.
const NotWhole = "copy, not whole"

// MovingAway is a volume that is being moved to another node: no pod gets it before that has ended.
const MovingAway = "moving to another node"

// OnItsNode is what the node itself knows to be unusual about it.
func (v VolumeStatus) OnItsNode() string {
	switch {
	case v.Copying != "":
		return v.Copying
	case v.SnapshotOf != "":
		return "snapshot of " + v.SnapshotOf
	default:
		return ""
	}
}
