package volume

import "testing"

// TestRecoveryTable holds every combination of what a crash can leave of one volume to the row of docs/reference/on-disk.md that decides it.
func TestRecoveryTable(t *testing.T) {
	for _, tc := range []struct {
		s    survey
		want verdict
	}{
		{survey{record: true, data: true}, healthy},
		{survey{record: true, data: true, unfinished: "v.1"}, healthy},
		{survey{record: true, data: true, staged: true}, healthy},
		{survey{record: true, data: true, staged: true, alias: true}, healthy},
		{survey{record: true, staged: true}, undoCreate},
		{survey{record: true, staged: true, unfinished: "v.1"}, undoCreate},
		{survey{record: true, unfinished: "v.1"}, finishDelete},
		{survey{record: true}, lostData},
		{survey{data: true}, foreign},
		{survey{data: true, unfinished: "v.1"}, foreign},
		{survey{data: true, staged: true}, foreign},
		{survey{staged: true}, dropStaged},
		{survey{staged: true, unfinished: "v.1"}, dropStaged},
		{survey{unfinished: "v.1"}, nothing},
		{survey{}, nothing},
		{survey{broken: true}, refused},
		{survey{broken: true, data: true}, refused},
		{survey{broken: true, staged: true}, refused},
		{survey{broken: true, unfinished: "v.1"}, refused},
	} {
		if got := tc.s.verdict(); got != tc.want {
			t.Errorf("%+v: verdict %d, want %d", tc.s, got, tc.want)
		}
	}
}
