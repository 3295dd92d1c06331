// Package control is how an admin speaks to the running driver: HTTP with JSON on a unix socket that only its user may
// use. Only that one process touches the pools or knows the nodes, so commands such as `driver pool forget` ask it.
package control

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// SocketName is the file of the socket in the state directory.
const SocketName = "control.sock"

// Paths of the requests.
const (
	pathStatus  = "/v1/status"
	pathVolumes = "/v1/volumes"
	pathForget  = "/v1/pools/{name}/forget"
	pathTake    = "/v1/pools/{name}/take"
	pathEnforce = "/v1/enforce"
	pathAdopt   = "/v1/volumes/{name}/adopt"
	pathDiscard = "/v1/volumes/{name}/discard"
)

// Status is the driver with all its pools; of the controller, which has no node, with all nodes.
type Status struct {
	Driver  string               `json:"driver"`
	Version string               `json:"version"`
	Node    string               `json:"node,omitempty"`
	Pools   []nodeapi.PoolStatus `json:"pools"`
	Nodes   []nodeapi.NodeStatus `json:"nodes,omitempty"`
}

// Selection are the volumes to enforce: those of IDs, which must be in Pool where that is given, or all in Pool that
// are not held to their size though they have an ID.
type Selection struct {
	Pool string   `json:"pool,omitempty"`
	IDs  []string `json:"ids,omitempty"`
	// Inodes is the inode limit that the volumes get, 0 for none; nil leaves it.
	Inodes *int64 `json:"inodes,omitempty"`
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

// taking says from which cluster a shared pool is taken.
type taking struct {
	From string `json:"from"`
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
	if s.Node == "" {
		writeNodes(table, s, now)
	} else {
		writePools(table, s, now)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

func writePools(table *tabwriter.Writer, s Status, now time.Time) {
	size := bytesize.Format
	fmt.Fprintf(table, "%s %s on node %s\n\n", s.Driver, s.Version, s.Node)
	fmt.Fprintln(table, "POOL\tSTATE\tSEEN\tBACKEND\tENFORCEMENT\tSIZE\tFREE\tALLOCATABLE\tPROMISED\tVOLUMES\tTRASH\t"+
		"LOST\tUNCOUNTED\tUNTRACKED\tPATH")
	for _, p := range s.Pools {
		seen, is := ago(p.Seen, now), p.State
		if !p.Served() {
			fmt.Fprintf(table, "%s\t%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", p.Name, is, seen, p.Path)
			continue
		}
		if p.ReadOnly {
			is += ", read-only"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n",
			p.Name, is, seen, p.Backend, p.Enforcement, size(p.Size), size(p.Free), size(p.Allocatable),
			size(p.Promised),
			p.Volumes, p.TrashEntries, p.Lost+p.Refused, p.Uncounted, p.Untracked, p.Path)
	}
	for _, p := range s.Pools {
		if p.Message != "" {
			fmt.Fprintf(table, "\n%s: %s: %s\n", p.Name, p.Reason, p.Message)
		}
	}
}

// writeNodes writes what the controller knows: one line per node and pool, and below it what is wrong.
func writeNodes(table *tabwriter.Writer, s Status, now time.Time) {
	size := bytesize.Format
	fmt.Fprintf(table, "%s %s, controller\n\n", s.Driver, s.Version)
	fmt.Fprintln(table, "NODE\tSTATE\tVERSION\tSEEN\tPOOL\tPRESENCE\tBACKEND\tENFORCEMENT\tSIZE\tFREE\tALLOCATABLE\t"+
		"PROMISED\tVOLUMES")
	var messages []string
	say := func(about, message string) {
		if message != "" {
			messages = append(messages, about+": "+message)
		}
	}
	for _, n := range s.Nodes {
		node := fmt.Sprintf("%s\t%s\t%s\t%s", n.Name, n.State, orNone(n.Version), ago(n.Seen, now))
		say(n.Name, n.Message)
		if len(n.Pools) == 0 {
			fmt.Fprintln(table, node+strings.Repeat("\t-", 9))
		}
		for _, p := range n.Pools {
			say(n.Name+": "+p.Name, p.Message)
			if !p.Served() {
				fmt.Fprintf(table, "%s\t%s\t%s%s\n", node, p.Name, p.State, strings.Repeat("\t-", 7))
				continue
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", node, p.Name, p.State, orNone(p.Backend),
				orNone(p.Enforcement), size(p.Size), size(p.Free), size(p.Allocatable), size(p.Promised), p.Volumes)
		}
	}
	for _, message := range messages {
		fmt.Fprintf(table, "\n%s\n", message)
	}
}

// WriteVolumes writes volumes for a person, one line each.
func WriteVolumes(w io.Writer, all []nodeapi.VolumeStatus) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tNODE\tPOOL\tCLAIM\tSIZE\tUSED\tENFORCEMENT\tSTATE")
	for _, v := range all {
		used := "-"
		if v.Used >= 0 {
			used = bytesize.Format(v.Used)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, v.Node, orNone(v.Pool), orNone(v.Claim),
			bytesize.Format(v.Bytes), used, orNone(v.Enforcement), orNone(v.State))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the volumes: %w", err)
	}
	return nil
}

func orNone(s string) string { return cmp.Or(s, "-") }

// ago is a time for a person.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return duration.HumanDuration(max(0, now.Sub(at))) + " ago"
}
