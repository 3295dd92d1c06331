package vm

import (
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
	most    = 6 // volumes of one worker
	mib     = 1 << 20
)

// world is what the driver has answered, and what it was asked and had not answered when the power was cut.
type world struct {
	random                *rand.Rand
	volumes               map[string]expected
	pending               map[int]operation // by request
	named                 int
	answered, interrupted int
}

type expected struct {
	bytes  int64
	marked bool
}

type operation struct {
	verb  string
	id    string
	bytes int64
}

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
		a := l.wait(t)
		op := w.pending[a.key]
		w.take(a)
		if !a.ok {
			t.Errorf("%s %s: %s", op.verb, op.id, a.text)
		}
		w.send(t, l, workerOf(op.id))
	}
}

// drain takes the answers that came before the cut and were not read yet.
func (w *world) drain(l *link) {
	for a := range l.answers {
		w.take(a)
	}
	w.interrupted += len(w.pending)
}

// send asks for something at random.
func (w *world) send(t *testing.T, l *link, worker int) {
	t.Helper()
	var own []string
	for _, id := range slices.Sorted(maps.Keys(w.volumes)) {
		if workerOf(id) == worker {
			own = append(own, id)
		}
	}
	op := operation{verb: []string{"create", "create", "mark", "expand", "delete"}[w.random.IntN(5)]}
	switch {
	case len(own) == 0:
		op.verb = "create"
	case len(own) >= most:
		op.verb = "delete"
	}
	if op.verb == "create" {
		w.named++
		op.id = fmt.Sprintf("pvc-%d-%d", worker, w.named)
		op.bytes = int64(1+w.random.IntN(8)) * mib
	} else {
		op.id = own[w.random.IntN(len(own))]
		op.bytes = w.volumes[op.id].bytes + int64(1+w.random.IntN(4))*mib
	}
	w.pending[l.ask(t, op.verb, op.id, op.bytes)] = op
}

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
	if !ok {
		return
	}
	delete(w.pending, a.key)
	if !a.ok {
		return
	}
	w.answered++
	switch v := w.volumes[op.id]; op.verb {
	case "create":
		w.volumes[op.id] = expected{bytes: op.bytes}
	case "expand":
		w.volumes[op.id] = expected{op.bytes, v.marked}
	case "mark":
		w.volumes[op.id] = expected{v.bytes, true}
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
		if got, there := s.Volumes[id]; !(there && got.Data) && doubt[id].verb != "delete" {
			problem("volume %s of %d bytes is lost", id, want.bytes)
		}
	}
	for id, got := range s.Volumes {
		want, known := w.volumes[id]
		op := doubt[id]
		switch {
		case !known && op.verb != "create":
			problem("volume %s, which was deleted, is back: %+v", id, got)
		case got.Bytes != want.bytes && got.Bytes != op.bytes:
			problem("volume %s has a size of %d in its record, want %d (or, asked for and not answered, %d)",
				id, got.Bytes, want.bytes, op.bytes)
		case want.marked && got.Data && !got.Marker:
			problem("volume %s has lost its file", id)
		}
	}
	if len(s.Untracked) > 0 {
		problem("in csi/ without a record: %v", s.Untracked)
	}
	return problems
}

// unsound lists what is wrong with a pool that the driver has recovered. Nobody changes any of it later.
func (s state) unsound() []string {
	var problems []string
	problem := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	sum := int64(0)
	for id, got := range s.Volumes {
		sum += got.Bytes
		if !got.Data {
			problem("volume %s has a record and no data", id)
		}
		if got.QuotaID == 0 || got.QuotaID != got.Counted {
			problem("volume %s has ID %d in its record, and its directory counts to %d", id, got.QuotaID, got.Counted)
		}
		if limit := s.Limits[got.QuotaID]; limit != got.Bytes {
			problem("volume %s has %d bytes, and the limit of ID %d is %d", id, got.Bytes, got.QuotaID, limit)
		}
	}
	if s.Promised != sum {
		problem("%d bytes are promised, the records' sum is %d", s.Promised, sum)
	}
	if len(s.Staging) > 0 {
		problem("left in staging: %v", s.Staging)
	}
	return problems
}

// leftovers lists what the driver removes in the background.
func (s state) leftovers() (left []string) {
	limits := maps.Clone(s.Limits)
	for _, v := range s.Volumes {
		delete(limits, v.QuotaID)
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

// accept takes what is there as true where an answer was missing.
func (w *world) accept(s state) {
	clear(w.pending)
	clear(w.volumes)
	for id, got := range s.Volumes {
		w.volumes[id] = expected{got.Bytes, got.Marker}
	}
}
