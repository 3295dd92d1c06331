// Package control is how an admin speaks to the running driver: HTTP with JSON on a unix socket that only root may use. Only
// that one process touches the pools, so commands such as `driver pool forget` ask it.
package control

import (
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
)

// SocketName is the file of the socket in the state directory.
const SocketName = "control.sock"

// Paths of the requests.
const (
	pathStatus = "/v1/status"
	pathForget = "/v1/pools/{name}/forget"
)

// Status is the driver with all its pools.
type Status struct {
	Driver  string `json:"driver"`
	Version string `json:"version"`
	Node    string `json:"node"`
	Pools   []Pool `json:"pools"`
}

// States of a pool.
const (
	Present       = "present"
	Absent        = "absent"
	NotSelected   = "not selected"   // the node's labels do not match, and it never used the pool
	NotConfigured = "not configured" // the node remembers the pool, the configuration does not hold it
)

// Pool is the state of one pool. Sizes are in bytes.
type Pool struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	State string `json:"state"`
	// Selected tells whether this node makes new volumes in the pool.
	Selected    bool   `json:"selected"`
	Reason      string `json:"reason,omitempty"`
	Message     string `json:"message,omitempty"`
	ID          string `json:"id,omitempty"`
	Backend     string `json:"backend,omitempty"`
	Enforcement string `json:"enforcement,omitempty"`
	// EnforcementLost tells that the filesystem's quota was switched off.
	EnforcementLost bool `json:"enforcementLost,omitempty"`
	// CountsWrong tells that the filesystem's quota has lost count, or is being counted again.
	CountsWrong bool  `json:"countsWrong,omitempty"`
	Inline      bool  `json:"inline"`
	Size        int64 `json:"size"`
	Free        int64 `json:"free"`
	Available   int64 `json:"available"`
	Promised    int64 `json:"promised"`
	Volumes     int   `json:"volumes"`
	Orphans     int   `json:"orphans"`
	Lost        int   `json:"lost"`
	Refused     int   `json:"refused"`
	Trash       int   `json:"trash"`
	// OldestTrash is when the oldest volume in the trash was deleted.
	OldestTrash time.Time `json:"oldestTrash,omitzero"`
}

// problem is the body of an answer that is no success.
type problem struct {
	Error string `json:"error"`
}

func present(s pool.Status) Pool {
	return Pool{
		Name: s.Name, Path: s.Path, State: state(s), Selected: s.Selected, Reason: s.Reason, Message: s.Message, ID: s.ID,
		Backend: s.Backend, Enforcement: s.Enforcement, EnforcementLost: s.EnforcementLost, CountsWrong: s.CountsWrong, Inline: s.Inline,
		Size: s.Size, Free: s.Free, Available: s.Available, Promised: s.Promised,
		Volumes: s.Volumes, Orphans: s.Orphans, Lost: s.Lost, Refused: s.Refused, Trash: s.TrashEntries, OldestTrash: s.OldestTrash,
	}
}

func state(s pool.Status) string {
	switch {
	case s.Remembered:
		return NotConfigured
	case s.Present:
		return Present
	case !s.Selected && s.ID == "":
		return NotSelected
	default:
		return Absent
	}
}
