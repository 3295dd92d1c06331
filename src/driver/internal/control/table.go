package control

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

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
