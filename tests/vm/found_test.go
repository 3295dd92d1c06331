package vm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// state is what the agent reports; State of src/driver/internal/powercuttest has the same fields.
type state struct {
	Volumes                             map[string]found
	Untracked, Prepared, Staging, Trash []string
	Limits                              map[uint64]int64
	Promised                            int64
}

type found struct {
	Bytes, Limit, Held    int64
	QuotaID, Counted      uint64
	Source, Sum           string
	Filling, Shares, Data bool
	Pins                  map[uint64]int64
}

func parseState(t *testing.T, text string) state {
	t.Helper()
	var s state
	must(t, json.Unmarshal([]byte(text), &s))
	return s
}

// unsound lists what is wrong with a pool that the driver has recovered. Nobody changes any of it later, but for what
// volumes hold for copies that are gone: as long as the record says it, limit and promise may be lower already.
func (s state) unsound() []string {
	var problems []string
	problem := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	least, most := int64(0), int64(0)
	for id, got := range s.Volumes {
		from := got.Limit - got.Held + min(got.Held, s.pinned(got.QuotaID))
		least, most = least+from, most+got.Limit
		if !got.Data && !got.Filling {
			problem("%s has a record and no data", id)
		}
		if limit := s.Limits[got.QuotaID]; limit < from || limit > got.Limit {
			problem("%s may have %d bytes, and the limit of ID %d is %d", id, got.Limit, got.QuotaID, limit)
		}
		if got.QuotaID == 0 && !got.Shares || got.QuotaID != got.Counted {
			problem("%s has ID %d in its record, and its directory counts to %d", id, got.QuotaID, got.Counted)
		}
	}
	if s.Promised < least || s.Promised > most {
		problem("%d bytes are promised, the records' sum is %d", s.Promised, most)
	}
	staged := slices.DeleteFunc(slices.Clone(s.Staging), func(id string) bool { return s.Volumes[id].Filling })
	if len(staged) > 0 {
		problem("left in staging: %v", staged)
	}
	return problems
}

// leftovers lists what the driver removes in the background.
func (s state) leftovers() (left []string) {
	limits := maps.Clone(s.Limits)
	for id, v := range s.Volumes {
		delete(limits, v.QuotaID)
		for pinned := range v.Pins {
			delete(limits, pinned)
		}
		if pinned := s.pinned(v.QuotaID); v.Held != pinned {
			left = append(left, fmt.Sprintf("%s holds %d bytes, and its copies need %d", id, v.Held, pinned))
		}
	}
	if len(limits) > 0 {
		left = append(left, fmt.Sprintf("limits of no volume are left: %v", limits))
	}
	for place, names := range map[string][]string{"the trash": s.Trash, "the records, never placed": s.Prepared} {
		if len(names) > 0 {
			left = append(left, fmt.Sprintf("left in %s: %v", place, names))
		}
	}
	return left
}

// pinned is the most that a copy keeps charged to an ID.
func (s state) pinned(id uint64) (most int64) {
	for _, v := range s.Volumes {
		most = max(most, v.Pins[id])
	}
	return most
}
