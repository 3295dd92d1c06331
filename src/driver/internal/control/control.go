// Package control is how an admin speaks to the running driver: HTTP with JSON on a unix socket that only root may use.
// Only that one process touches the pools, so commands such as `driver pool forget` ask it.
package control

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
)

// SocketName is the file of the socket in the state directory.
const SocketName = "control.sock"

// Paths of the requests.
const (
	pathStatus  = "/v1/status"
	pathForget  = "/v1/pools/{name}/forget"
	pathEnforce = "/v1/enforce"
	pathAdopt   = "/v1/volumes/{name}/adopt"
	pathDiscard = "/v1/volumes/{name}/discard"
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
	NotConfigured = "not configured" // the node remembers the pool, the configuration does not have it
)

// Pool is the state of one pool. Sizes are in bytes.
type Pool struct {
	State string `json:"state"`
	pool.Status
}

func state(s pool.Status) string {
	switch {
	case !s.Configured:
		return NotConfigured
	case s.Present:
		return Present
	case !s.Selected && !s.Used:
		return NotSelected
	default:
		return Absent
	}
}

// Selection are the volumes to enforce: those of IDs, which must be in Pool where that is given, or all in Pool that
// are not held to their size though they have an ID.
type Selection struct {
	Pool string   `json:"pool,omitempty"`
	IDs  []string `json:"ids,omitempty"`
}

// Progress is one line of the answer to a Selection. The last line of a complete answer has no ID.
type Progress struct {
	ID    string `json:"id,omitempty"`
	Files int64  `json:"files,omitempty"` // counted so far
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// Adoption says what PersistentVolume is wanted for a volume.
type Adoption struct {
	Bytes        int64  `json:"bytes,omitempty"` // of a volume without a record
	StorageClass string `json:"storageClass,omitempty"`
}

// disposal says which PersistentVolume does not keep a volume from being discarded.
type disposal struct {
	PVOn string `json:"pvOn,omitempty"` // the only node that it names
}

// forgotten answers the request to forget a pool.
type forgotten struct {
	Known bool `json:"known"` // the node had used the pool
}

// problem is the body of an answer that is no success.
type problem struct {
	Error string `json:"error"`
}

// WriteTable writes a status for a person: one line per pool, and below it what is wrong.
func WriteTable(w io.Writer, s Status, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(table, "%s %s on node %s\n\n", s.Driver, s.Version, s.Node)
	fmt.Fprintln(table, "POOL\tSTATE\tSEEN\tBACKEND\tENFORCEMENT\tSIZE\tFREE\tALLOCATABLE\tPROMISED\tVOLUMES\tTRASH\t"+
		"ORPHANS\tLOST\tUNCOUNTED\tPATH")
	for _, p := range s.Pools {
		seen, is := "never", p.State
		if !p.Seen.IsZero() {
			seen = duration.HumanDuration(max(0, now.Sub(p.Seen))) + " ago"
		}
		if is != Present {
			fmt.Fprintf(table, "%s\t%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", p.Name, is, seen, p.Path)
			continue
		}
		if p.ReadOnly {
			is += ", read-only"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n",
			p.Name, is, seen, p.Backend, p.Enforcement, size(p.Size), size(p.Free), size(p.Allocatable), size(p.Promised),
			p.Volumes, p.TrashEntries, p.Orphans, p.Lost+p.Refused, p.Uncounted, p.Path)
	}
	for _, p := range s.Pools {
		if p.Message != "" {
			fmt.Fprintf(table, "\n%s: %s: %s\n", p.Name, p.Reason, p.Message)
		}
		if p.Elsewhere > 0 {
			fmt.Fprintf(table, "\n%s: %d volumes belong to other nodes by their PersistentVolumes\n", p.Name, p.Elsewhere)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// size is a number of bytes for a person.
func size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d", bytes)
	}
	value, suffix := float64(bytes)/unit, "KMGTPE"
	for value >= unit && len(suffix) > 1 {
		value, suffix = value/unit, suffix[1:]
	}
	return fmt.Sprintf("%.1f%ci", value, suffix[0])
}
