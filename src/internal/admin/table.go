package admin

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

// WriteTable writes a status for a person: one line per pool, and below it what is wrong.
func WriteTable(w io.Writer, s nodeapi.Status, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if s.Node == "" {
		writeNodes(table, s, now)
	} else {
		writePools(table, s, now)
	}
	return flush(table, "status")
}

// hangs is for how long a pool on this node may not have been seen: its watcher looks every 2 seconds.
const hangs = 30 * time.Second

func writePools(table *tabwriter.Writer, s nodeapi.Status, now time.Time) {
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
		if p.Served() && now.Sub(p.Seen) > hangs {
			fmt.Fprintf(table, "\n%s: its filesystem has not answered since it was seen, %s: see "+
				"docs/runbooks/HostpathPoolHangs.md\n", p.Name, ago(p.Seen, now))
		}
	}
}

// writeNodes writes what the controller knows: one line per node and pool, and below it what is wrong.
func writeNodes(table *tabwriter.Writer, s nodeapi.Status, now time.Time) {
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
	fmt.Fprintln(table, "ID\tNODE\tPOOL\tCLAIM\tSIZE\tHELD\tUSED\tENFORCEMENT\tSTATE")
	for _, v := range all {
		held, used := "-", "-"
		if v.Held > 0 {
			held = bytesize.Format(v.Held)
		}
		if v.Used >= 0 {
			used = bytesize.Format(v.Used)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, v.Node, orNone(v.Pool), orNone(v.Claim),
			bytesize.Format(v.Bytes), held, used, orNone(v.Enforcement), orNone(v.State))
	}
	return flush(table, "volumes")
}

// WriteDeleted writes deleted volumes for a person, one line each, and below them which nodes were asked in vain.
func WriteDeleted(w io.Writer, all []nodeapi.DeletedVolume, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ENTRY\tNODE\tPOOL\tCLAIM\tSIZE\tDELETED\tPURGED")
	var messages []string
	for _, v := range all {
		if v.Entry == "" {
			messages = append(messages, v.State)
			continue
		}
		purged := "in " + duration.HumanDuration(v.Due.Sub(now))
		switch {
		case v.Due.IsZero():
			purged = "never"
		case !v.Due.After(now):
			purged = "now"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Entry, v.Node, v.Pool, orNone(v.Claim),
			bytesize.Format(v.Bytes), ago(v.Deleted, now), purged)
	}
	for _, message := range messages {
		fmt.Fprintf(table, "\n%s\n", message)
	}
	return flush(table, "deleted volumes")
}

// flush ends a table of something.
func flush(table *tabwriter.Writer, what string) error {
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the %s: %w", what, err)
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
