package store_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

// want says what a row of the table asks of one column.
type want int

const (
	either want = iota // the column makes no difference
	yes
	no
)

func (w want) admits(is bool) bool { return w == either || (w == yes) == is }

// row is one row of the table in docs/development/on-disk.md, first match first.
type row struct {
	broken, record, data, staged, unfinished, prepared, filling, filled, shared want
	verdict                                                                     store.Verdict
}

func (r row) matches(s store.Survey) bool {
	return r.broken.admits(s.Broken) && r.record.admits(s.Record) && r.data.admits(s.Data) &&
		r.staged.admits(s.Staged) &&
		r.unfinished.admits(s.Unfinished != "") && r.prepared.admits(s.Prepared) &&
		r.filling.admits(s.Filling) && r.filled.admits(s.Filled) && r.shared.admits(s.Shared)
}

func rows() []row {
	return []row{
		{broken: yes, verdict: store.Refused},
		{record: yes, filling: yes, staged: yes, verdict: store.Filling},
		{record: yes, filling: yes, data: yes, verdict: store.Filling}, // by hand: it is taken for whole by nobody
		{record: yes, data: yes, verdict: store.Healthy},
		{record: yes, data: no, staged: yes, filled: yes, verdict: store.FinishCreate},
		{record: yes, data: no, staged: yes, shared: yes, verdict: store.FinishCreate},
		{record: yes, data: no, staged: yes, verdict: store.UndoCreate},
		{record: yes, data: no, staged: no, unfinished: yes, verdict: store.FinishDelete},
		{record: yes, data: no, staged: no, unfinished: no, filling: yes, verdict: store.UndoCreate},
		{record: yes, data: no, staged: no, unfinished: no, verdict: store.LostData},
		{record: no, data: yes, verdict: store.Untracked},
		{record: no, data: no, staged: yes, verdict: store.DropStaged},
		{record: no, data: no, staged: no, prepared: yes, verdict: store.DropStaged},
		{record: no, data: no, staged: no, prepared: no, verdict: store.Nothing},
	}
}

// TestVerdict compares every combination of what a crash can leave of one volume with the row that decides it.
func TestVerdict(t *testing.T) {
	const columns = 10
	for bits := range 1 << columns {
		has := func(column int) bool { return bits>>column&1 == 1 }
		s := store.Survey{
			Record: has(0), Broken: has(1), Prepared: has(2), Data: has(3), Staged: has(4), Alias: has(5),
			Filling: has(7), Filled: has(8), Shared: has(9),
		}
		if has(6) {
			s.Unfinished = "v.1"
		}
		decided := false
		for _, r := range rows() {
			if decided = r.matches(s); decided {
				if got := s.Verdict(); got != r.verdict {
					t.Errorf("%+v: verdict %d, want %d", s, got, r.verdict)
				}
				break
			}
		}
		if !decided {
			t.Errorf("%+v: no row decides it", s)
		}
	}
}
