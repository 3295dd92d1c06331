// Package poolspec is a storage pool as configuration: one schema for the chart's storagePools, the driver's ConfigMap
// and the custom resource, so that they cannot drift. It is pure: no disk, no API.
package poolspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

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
	// Scope is node unless said otherwise, and shared for a pool whose PVCTemplate has ReadWriteMany.
	Scope Scope `json:"scope,omitempty"`
	// NodeSelector are node labels; a node without them creates no volumes but serves those it has.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// RequireMount adopts the pool only where a filesystem of its own is mounted. Nil: as MountRequired says; it cannot
	// be false together with PVCTemplate.
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
	// SharedAccess allows ReadWriteMany and ReadOnlyMany claims while the pool is selected on one node only.
	SharedAccess bool `json:"sharedAccess,omitempty"`
	// Trash says what happens to deleted volumes.
	Trash Trash `json:"trash,omitzero"`
	// PVCTemplate takes the filesystem from a claim (the spec of a PersistentVolumeClaim), which a mounter puts at
	// Path/csi: from one for each node, or with ReadWriteMany from one for all. The driver serves the pool only where
	// something is mounted there.
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
	return p.Shared() || p.PVCTemplate != nil
}

// Shared reports whether the pool is one filesystem that all nodes have.
func (p Pool) Shared() bool { return p.Scope == ScopeShared }

// AllowsMany reports whether claims may ask for ReadWriteMany or ReadOnlyMany.
func (p Pool) AllowsMany() bool { return p.SharedAccess || p.Shared() }

// UnmarshalJSON reads a Go duration: "36h", "90m", "0s", or a bare 0.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	parsed, err := time.ParseDuration(strings.Trim(string(data), `"`))
	if err != nil {
		return errors.New(`want a duration: a number with a unit of s, m or h, such as "36h" or "0s"`)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the duration as Go does, "36h0m0s".
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// fewBytes is below what anybody reserves: a number alone that is smaller was meant as a percentage.
const fewBytes = 1 << 20

// UnmarshalJSON reads bytes (a number or a Kubernetes quantity, "10Gi") or a percentage ("5%", "2.5%").
func (r *Reserve) UnmarshalJSON(data []byte) (err error) {
	if string(data) == "null" {
		return nil
	}
	read, text := Reserve{}, strings.Trim(string(data), `"`)
	if share, ok := strings.CutSuffix(text, "%"); ok {
		read.Percent, err = strconv.ParseFloat(share, 64)
	} else {
		read.Bytes, err = ParseBytes(text)
	}
	if err != nil {
		return errors.New(`want a whole number of bytes such as "4096" or "10Gi", or a percentage such as "5%"`)
	}
	if text == string(data) && 0 < read.Bytes && read.Bytes < fewBytes {
		return fmt.Errorf(`a number alone is bytes: want "%s%%" for a share, or a quantity such as "10Gi"`, text)
	}
	*r = read
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Reserve) MarshalJSON() ([]byte, error) {
	if r.Percent != 0 {
		return json.Marshal(strconv.FormatFloat(r.Percent, 'f', -1, 64) + "%")
	}
	return json.Marshal(resource.NewQuantity(r.Bytes, resource.BinarySI).String())
}

// quantityPattern admits quantities that apimachinery parses at once: "1e-99999999" takes it 43 s.
var quantityPattern = regexp.MustCompile(
	`^[+-]?[0-9]{1,20}(\.[0-9]{0,9})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// ParseBytes reads a Kubernetes quantity ("10Gi", "1.5G", "4096") as a whole number of bytes.
func ParseBytes(text string) (int64, error) {
	if quantityPattern.MatchString(text) {
		quantity, err := resource.ParseQuantity(text)
		if bytes := quantity.Value(); err == nil && quantity.CmpInt64(bytes) == 0 {
			return bytes, nil
		}
	}
	return 0, fmt.Errorf(`%q is no whole number of bytes: want a quantity such as "4096" or "10Gi"`, text)
}
