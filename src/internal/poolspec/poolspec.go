// Package poolspec is a storage pool as configuration: one schema for the chart's storagePools, the driver's ConfigMap
// and the custom resource, so that they cannot drift. It is pure: no disk, no API.
package poolspec

import "time"

// Scope says where a pool's volumes can be used.
type Scope string

// Quota says how much enforcement of sizes a pool asks for.
type Quota string

// The values of Scope and Quota.
const (
	ScopeNode   Scope = "node"   // each node has its own volumes
	ScopeShared Scope = "shared" // one network filesystem at the same path on every node

	QuotaAuto     Quota = "auto"     // use the quota that is already on
	QuotaRequired Quota = "required" // refuse the pool where sizes cannot be enforced
	QuotaNone     Quota = "none"     // never enforce
)

// Config is the driver's configuration file.
type Config struct {
	StoragePools []Pool `json:"storagePools"`
}

// Pool is one entry of storagePools, defaulted and validated by Parse.
type Pool struct {
	// Name is a DNS label, unique in the configuration.
	Name string `json:"name"`
	// Path is absolute and clean; volumes live in Path/csi.
	Path string `json:"path"`
	// Scope is node unless said otherwise.
	Scope Scope `json:"scope,omitempty"`
	// NodeSelector are node labels; a node without them creates no volumes but serves those it has.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// RequireMount adopts the pool only where a filesystem of its own is mounted. Nil: true for shared pools
	// and those with a pvcTemplate, else false.
	RequireMount *bool `json:"requireMount,omitempty"`
	// Quota is auto unless said otherwise.
	Quota Quota `json:"quota,omitempty"`
	// Reserve is never promised to volumes: bytes, or a share of the filesystem's size.
	Reserve Reserve `json:"reserve,omitzero"`
	// Overcommit is the factor on the pool's size up to which volumes are promised; 0 means the backend's default.
	Overcommit float64 `json:"overcommit,omitempty"`
	// MaxVolumes limits the number of volumes on one node; 0 means no limit.
	MaxVolumes int `json:"maxVolumes,omitempty"`
	// Inline allows CSI inline ephemeral volumes in this pool.
	Inline bool `json:"inline,omitempty"`
	// Trash says what happens to deleted volumes.
	Trash Trash `json:"trash,omitzero"`
	// PVCTemplate takes the filesystem from a claim per node. This version of the driver refuses it.
	PVCTemplate map[string]any `json:"pvcTemplate,omitempty"`
}

// Trash is the pool's handling of deleted volumes.
type Trash struct {
	// Retention is how long deleted volumes are kept before they are purged; 0 purges at once.
	Retention Duration `json:"retention,omitempty"`
	// PurgeWhenFull lets retention give way when the pool is full: the oldest deleted volumes are purged first.
	PurgeWhenFull bool `json:"purgeWhenFull,omitempty"`
}

// Duration is a time.Duration that is written as Go writes it ("36h", "0s").
type Duration time.Duration

// Reserve is an amount of space kept free: Bytes, or Percent of the filesystem's size (one of them is 0).
type Reserve struct {
	Bytes   int64
	Percent float64
}

// Of is the reserve in bytes on a filesystem of the given size in bytes.
func (r Reserve) Of(size int64) int64 {
	return r.Bytes + int64(r.Percent/100*float64(size))
}

// MountRequired reports whether the pool is adopted only where a filesystem of its own is mounted.
func (p Pool) MountRequired() bool {
	if p.RequireMount != nil {
		return *p.RequireMount
	}
	return p.Scope == ScopeShared || p.PVCTemplate != nil
}
