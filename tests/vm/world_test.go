package vm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	workers = 4 // each with volumes of its own, one request at a time
	most    = 8 // volumes and snapshots of one worker
	mib     = 1 << 20
	share   = 4 // of a volume's bytes one in so many is written: what is replaced counts until the filesystem frees it
	sumSize = 16
	nothing = "-" // what a volume is made of that is no copy
)

// world is what the driver has answered, and what it was asked and had not answered when the power was cut.
type world struct {
	random                *rand.Rand
	volumes               map[string]expected // and snapshots
	pending               map[int]operation   // by request
	named                 int
	answered, interrupted int
	halves                int // copies that were found in part
}

// expected is a volume or a snapshot. One that is asked for is a copy that is under way, of a source.
type expected struct {
	bytes  int64
	sum    string
	asked  bool
	source string
}

// operation is what the driver is asked for. Of a copy sum is what its source has.
type operation struct {
	verb, id string
	bytes    int64
	source   string
	sum      string
}

func (o operation) makes() bool { return o.verb == "create" || o.verb == "snapshot" }

func newWorld(random *rand.Rand) *world {
	return &world{random: random, volumes: map[string]expected{}, pending: map[int]operation{}}
}

// work keeps every worker busy until that many answers have come.
func (w *world) work(t *testing.T, l *link, answers int) {
	t.Helper()
	for worker := range workers {
		w.send(t, l, worker)
	}
	for range answers {
		w.send(t, l, workerOf(w.next(t, l).id))
	}
}

// next takes the next answer.
func (w *world) next(t *testing.T, l *link) (about operation) {
	t.Helper()
	a := l.wait(t)
	about = w.pending[a.key]
	w.take(a)
	if !a.ok {
		t.Errorf("%+v: %s", about, a.text)
	}
	return about
}

// deleteAll deletes what is there: copies that are not whole, and then what they are made of, which is refused before.
func (w *world) deleteAll(t *testing.T, l *link) {
	t.Helper()
	for _, half := range []bool{true, false} {
		for _, id := range slices.Sorted(maps.Keys(w.volumes)) {
			if op := (operation{verb: "delete", id: id, source: nothing}); w.volumes[id].asked == half {
				w.pending[l.ask(t, op)] = op
			}
		}
		for len(w.pending) > 0 {
			w.next(t, l)
		}
	}
}

// drain takes the answers that came before the cut and were not read yet.
func (w *world) drain(l *link) {
	for a := range l.answers {
		w.take(a)
	}
	w.interrupted += len(w.pending)
}

// send asks for something.
func (w *world) send(t *testing.T, l *link, worker int) {
	t.Helper()
	op := w.choose(worker)
	w.pending[l.ask(t, op)] = op
}

// choose chooses at random. A copy that is under way is gone on with, or deleted, before its source changes.
func (w *world) choose(worker int) operation {
	var own, volumes []string
	for _, id := range slices.Sorted(maps.Keys(w.volumes)) {
		if workerOf(id) != worker {
			continue
		}
		if w.volumes[id].asked {
			return w.goOn(id)
		}
		own = append(own, id)
		if !isSnapshot(id) {
			volumes = append(volumes, id)
		}
	}
	verbs := []string{"create", "mark", "mark", "snapshot", "snapshot", "copy", "copy", "expand", "delete", "delete"}
	verb := verbs[w.random.IntN(len(verbs))]
	switch {
	case len(volumes) == 0:
		verb = "create"
	case len(own) >= most:
		verb = "delete"
	}
	op := w.operation(worker, verb, own, volumes)
	if op.source != nothing && op.sum == "" && !isSnapshot(op.source) { // a copy of no data shows little
		op = w.operation(worker, "mark", nil, []string{op.source})
	}
	return op
}

func (w *world) goOn(id string) operation {
	v := w.volumes[id]
	op := operation{verb: "create", id: id, bytes: v.bytes, source: v.source, sum: v.sum}
	if isSnapshot(id) {
		op.verb = "snapshot"
	}
	if w.random.IntN(4) == 0 {
		op.verb = "delete"
	}
	return op
}

func (w *world) operation(worker int, verb string, own, volumes []string) operation {
	op := operation{verb: verb, source: nothing}
	some := func(ids []string) string { return ids[w.random.IntN(len(ids))] }
	more := func(most int) int64 { return int64(w.random.IntN(most)) * mib }
	if verb == "create" || verb == "copy" {
		w.named++
		op.verb, op.id, op.bytes = "create", fmt.Sprintf("pvc-%d-%d", worker, w.named), mib+more(8)
	}
	switch verb {
	case "copy":
		op.source = some(own)
		op.bytes = w.volumes[op.source].bytes + more(3)
	case "snapshot":
		w.named++
		op.id, op.source = snapshotID(worker, w.named), some(volumes)
		op.bytes = w.volumes[op.source].bytes
	case "mark":
		op.id = some(volumes)
		op.bytes = w.volumes[op.id].bytes / share
	case "expand":
		op.id = some(volumes)
		op.bytes = w.volumes[op.id].bytes + mib + more(4)
	case "delete":
		op.id = some(own)
	}
	op.sum = w.volumes[op.source].sum
	return op
}

// snapshotID is what the driver of node vm calls a snapshot with a name of csi-snapshotter's form.
func snapshotID(worker, n int) string {
	node := sha256.Sum256([]byte("vm"))
	return fmt.Sprintf("snap-%08d-0000-0000-0000-%012d.%.10s", worker, n, hex.EncodeToString(node[:]))
}

func isSnapshot(id string) bool { return strings.HasPrefix(id, "snap-") }

func workerOf(id string) int {
	worker, err := strconv.Atoi(strings.Split(id, "-")[1])
	if err != nil {
		panic(err)
	}
	return worker
}

// take learns from an answer.
func (w *world) take(a answer) {
	op, ok := w.pending[a.key]
	if !ok || a.ok && op.verb == "mark" && len(a.text) < sumSize { // the end of the line was cut off
		return
	}
	delete(w.pending, a.key)
	if !a.ok {
		return
	}
	w.answered++
	switch v := w.volumes[op.id]; op.verb {
	case "create", "snapshot":
		w.volumes[op.id] = expected{bytes: op.bytes, sum: op.sum}
	case "expand":
		w.volumes[op.id] = expected{bytes: op.bytes, sum: v.sum}
	case "mark":
		w.volumes[op.id] = expected{bytes: v.bytes, sum: a.text}
	case "delete":
		delete(w.volumes, op.id)
	}
}

// judge lists what was answered and is not so. It is so at any time, also before the driver has looked at the disk.
func (w *world) judge(s state) []string {
	var problems []string
	problem := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	doubt := map[string]operation{}
	for _, op := range w.pending {
		doubt[op.id] = op
	}
	for id, want := range w.volumes {
		if got, there := s.Volumes[id]; !(there && got.Data) && doubt[id].verb != "delete" && !want.asked {
			problem("%s of %d bytes is lost: %+v", id, want.bytes, got)
		}
	}
	for id, got := range s.Volumes {
		want, known := w.volumes[id]
		op := doubt[id]
		if !known && op.makes() {
			want = expected{bytes: op.bytes, sum: op.sum}
		}
		switch {
		case !known && !op.makes():
			problem("%s, which was deleted, is back: %+v", id, got)
		case got.Bytes != want.bytes && (op.verb != "expand" || got.Bytes != op.bytes):
			problem("%s has a size of %d in its record, want %d (or, asked for and not answered, %d)",
				id, got.Bytes, want.bytes, op.bytes)
		case got.Filling && got.Data:
			problem("%s is in csi/, and is not whole: %+v", id, got)
		case got.Data && got.Sum != want.sum && op.verb != "mark":
			problem("%s has other data than it had, or than %s had when it was copied: %+v, want the sum %q",
				id, cmp.Or(got.Source, nothing), got, want.sum)
		}
	}
	if len(s.Untracked) > 0 {
		problem("in csi/ without a record: %v", s.Untracked)
	}
	return problems
}

// accept takes what is there as true where an answer was missing. A copy under way is to have what its source has.
func (w *world) accept(s state) {
	clear(w.pending)
	clear(w.volumes)
	for id, got := range s.Volumes {
		w.volumes[id] = expected{bytes: got.Bytes, sum: got.Sum, asked: got.Filling, source: got.Source}
	}
	for id, v := range w.volumes {
		if v.asked {
			w.halves++
			v.sum = w.volumes[v.source].sum
			w.volumes[id] = v
		}
	}
}
