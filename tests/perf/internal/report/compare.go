package report

import (
	"fmt"
	"strings"
	"time"
)

// Compare is a Markdown table of two runs' figures, in the order of the newer one. Figures that only one of them
// has are listed without a change.
func Compare(older, newer Report) string {
	was := map[string]Figure{}
	for _, s := range older.Sections {
		for _, f := range s.Figures {
			was[f.Name] = f
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| what | %s | %s | change |\n|---|---:|---:|---:|\n", heading(older), heading(newer))
	for _, s := range newer.Sections {
		for _, f := range s.Figures {
			before, change := "–", "new"
			if o, ok := was[f.Name]; ok {
				before, change = o.quantity(), difference(o, f)
				delete(was, f.Name)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Name, before, f.quantity(), change)
		}
	}
	for _, s := range older.Sections {
		for _, f := range s.Figures {
			if _, left := was[f.Name]; left {
				fmt.Fprintf(&b, "| %s | %s | – | gone |\n", f.Name, f.quantity())
			}
		}
	}
	return b.String()
}

func heading(r Report) string {
	return r.Machine.Driver + " " + r.Started.UTC().Format(time.DateTime)
}

// difference is the change from one figure's value to the other's in percent.
func difference(from, to Figure) string {
	switch {
	case from.NotMeasured || to.NotMeasured:
		return "?"
	case from.Value == to.Value:
		return "0 %"
	case from.Value == 0:
		return "?"
	default:
		return fmt.Sprintf("%+.0f %%", (to.Value-from.Value)/from.Value*100)
	}
}
