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
		op := w.pending[a.number]
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
	op, ok := w.pending[a.number]
	if !ok {
		return
	}
	delete(w.pending, a.number)
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

// compare lists what is not as promised.
func (w *world) compare(s state) []string {
	var problems []string
	problem := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	doubt := map[string]operation{}
	for _, op := range w.pending {
		doubt[op.id] = op
	}
	for id, want := range w.volumes {
		if _, there := s.Volumes[id]; !there && doubt[id].verb != "delete" {
			problem("volume %s of %d bytes is lost", id, want.bytes)
		}
	}
	accounts, sum := map[uint32]int64{}, int64(0)
	for id, got := range s.Volumes {
		want, known := w.volumes[id]
		op := doubt[id]
		switch {
		case !known && op.verb != "create":
			problem("volume %s, which was deleted, is back: %+v", id, got)
		case !got.Data:
			problem("volume %s has a record and no data", id)
		case got.Bytes != want.bytes && got.Bytes != op.bytes:
			problem("volume %s has a size of %d in its record, want %d (or, asked for and not answered, %d)", id, got.Bytes, want.bytes, op.bytes)
		case want.marked && !got.Marker:
			problem("volume %s has lost its file", id)
		case got.Number == 0 || got.Number != got.Counted:
			problem("volume %s has account %d in its record, and its directory counts to %d", id, got.Number, got.Counted)
		}
		accounts[got.Number] = got.Bytes
		sum += got.Bytes
	}
	if !maps.Equal(accounts, s.Accounts) {
		problem("limits on the disk are %v, those of the records %v", s.Accounts, accounts)
	}
	if s.Promised != sum {
		problem("%d bytes are promised, the records' sum is %d", s.Promised, sum)
	}
	for place, left := range map[string][]string{"csi/ without a record": s.Foreign, "staging": s.Staging, "trash": s.Trash} {
		if len(left) > 0 {
			problem("left in %s: %v", place, left)
		}
	}
	return problems
}

// accept takes what is there as true where an answer was missing.
func (w *world) accept(s state) {
	clear(w.pending)
	clear(w.volumes)
	for id, got := range s.Volumes {
		w.volumes[id] = expected{got.Bytes, got.Marker}
	}
}
