package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestJudge: what was answered and is not so is said at the first look, whatever the driver might do about it later.
func TestJudge(t *testing.T) {
	w := &world{
		volumes: map[string]expected{
			"pvc-0-1": {bytes: 1, sum: "a"}, "pvc-0-2": {bytes: 2}, "pvc-0-4": {bytes: 5, sum: "b", asked: true},
		},
		pending: map[int]operation{
			1: {verb: "delete", id: "pvc-0-2", bytes: 3}, 2: {verb: "create", id: "pvc-1-1", bytes: 4},
			3: {verb: "snapshot", id: "snap-0-3", bytes: 1, source: "pvc-0-1", sum: "a"},
		},
	}
	sound := found{Bytes: 1, Data: true, Sum: "a"}
	with := func(id string, f found) map[string]found { return map[string]found{"pvc-0-1": sound, id: f} }
	for name, test := range map[string]struct {
		volumes   map[string]found
		untracked []string
		says      string
	}{
		"as answered, the rest undone": {
			volumes: map[string]found{"pvc-0-1": sound, "pvc-0-2": {Bytes: 2, Data: true}},
		},
		"as answered, the rest done": {volumes: map[string]found{"pvc-0-1": sound, "pvc-1-1": {Bytes: 4, Data: true}}},
		"the rest under way":         {volumes: map[string]found{"pvc-0-1": sound, "pvc-0-2": {Bytes: 2}}},
		"lost":                       {says: "pvc-0-1 of 1 bytes is lost"},
		"lost with a record":         {volumes: map[string]found{"pvc-0-1": {Bytes: 1}}, says: "is lost"},
		"back":                       {volumes: map[string]found{"pvc-0-1": sound, "pvc-0-9": {}}, says: "is back"},
		"another size": {
			volumes: map[string]found{"pvc-0-1": {Bytes: 7, Data: true}}, says: "a size of 7",
		},
		"emptied":          {volumes: map[string]found{"pvc-0-1": {Bytes: 1, Data: true}}, says: "has other data"},
		"copied":           {volumes: with("snap-0-3", sound)},
		"half copied":      {volumes: with("snap-0-3", found{Bytes: 1, Filling: true})},
		"half, in place":   {volumes: with("snap-0-3", found{Bytes: 1, Filling: true, Data: true}), says: "not whole"},
		"half, as a whole": {volumes: with("snap-0-3", found{Bytes: 1, Data: true}), says: "has other data"},
		"copied later":     {volumes: with("pvc-0-4", found{Bytes: 5, Data: true, Sum: "b"})},
		"wrongly copied":   {volumes: with("pvc-0-4", found{Bytes: 5, Data: true, Sum: "a"}), says: "has other data"},
		"without a record": {
			volumes: map[string]found{"pvc-0-1": sound}, untracked: []string{"pvc-0-3"},
			says: "without a record: [pvc-0-3]",
		},
	} {
		problems := w.judge(state{Volumes: test.volumes, Untracked: test.untracked})
		if test.says == "" && len(problems) > 0 || test.says != "" && !contains(problems, test.says) {
			t.Errorf("%s: %q, want %q", name, problems, test.says)
		}
	}
}

func contains(problems []string, part string) bool {
	return slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, part) })
}

// TestUnsound: only what is removed in the background may be there at first.
func TestUnsound(t *testing.T) {
	sound := func() state {
		return state{
			Volumes: map[string]found{
				"pvc-0-1":  {Bytes: 1, Limit: 3, Held: 2, QuotaID: 7, Counted: 7, Data: true},
				"pvc-0-2":  {Bytes: 1, Limit: 2, QuotaID: 6, Counted: 6, Filling: true},
				"snap-0-3": {Bytes: 1, Shares: true, Pins: map[uint64]int64{7: 2}, Data: true},
			},
			Limits: map[uint64]int64{6: 2, 7: 3}, Promised: 5, Staging: []string{"pvc-0-2"},
		}
	}
	volume := func(change func(*found)) func(*state) {
		return func(s *state) {
			f := s.Volumes["pvc-0-1"]
			change(&f)
			s.Volumes["pvc-0-1"] = f
		}
	}
	for name, test := range map[string]struct {
		change func(*state)
		says   string
		later  bool // it may go away
	}{
		"sound":          {change: func(*state) {}},
		"no data":        {change: volume(func(f *found) { f.Data = false }), says: "no data"},
		"not counted":    {change: volume(func(f *found) { f.Counted = 8 }), says: "counts to 8"},
		"another limit":  {change: func(s *state) { s.Limits[7] = 2 }, says: "the limit of ID 7 is 2"},
		"promised twice": {change: func(s *state) { s.Promised = 6 }, says: "6 bytes are promised"},
		"staging":        {change: func(s *state) { s.Staging = []string{"x"} }, says: "staging: [x]"},
		"held for none":  {change: func(s *state) { delete(s.Volumes, "snap-0-3") }, says: "holds 2", later: true},
		"trash":          {change: func(s *state) { s.Trash = []string{"x"} }, says: "trash: [x]", later: true},
		"prepared": {
			change: func(s *state) { s.Prepared = []string{"x"} }, says: "never placed: [x]", later: true,
		},
		"a limit": {change: func(s *state) { s.Limits[8] = 1 }, says: "map[8:1]", later: true},
	} {
		s := sound()
		test.change(&s)
		now, later := s.unsound(), s.leftovers()
		if wrong := test.says != "" &&
			!contains(map[bool][]string{false: now, true: later}[test.later], test.says); wrong ||
			(test.says == "" || test.later) && len(now) > 0 || !test.later && len(later) > 0 {
			t.Errorf("%s: now %q, later %q, want %q", name, now, later, test.says)
		}
	}
}

// TestNoCutIsNoSuccess: no suite passes that has run nothing.
func TestNoCutIsNoSuccess(t *testing.T) {
	for text, want := range map[string]int{"": 1, "1": 1, "30": 30, "0": 0, "-1": 0, "some": 0} {
		if cuts, err := cutsToDo(text); cuts != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d cuts, %v", text, cuts, err)
		}
	}
}
