package moves_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/moves"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// TestMove: it waits for the pod, and then the volume is on the other node.
func TestMove(t *testing.T) {
	w := newWorld()
	w.start(t)
	w.look(t, false)
	all, err := w.room(t).List(t.Context())
	if err != nil || len(all) != 1 || all[0].GetPhase() != "leave" ||
		all[0].GetMessage() != "it waits until no pod on node a has it" {
		t.Fatal(all, err)
	}
	r := w.room(t)
	r.Look(t.Context(), false) // of a replica that does not lead
	if r.Moving(volume) != "a" || r.Moving("pvc-2") != "" {
		t.Errorf("it is on %q", r.Moving(volume))
	}
	w.nodes["a"].Published = false
	w.look(t, false)
	w.moved(t, "moved")
}

// TestMoveFails: whichever call fails, before it is done or after, the next controller goes on.
func TestMoveFails(t *testing.T) {
	for _, after := range []bool{false, true} {
		for fails := 1; ; fails++ {
			w := newWorld()
			w.nodes["a"].Published = false
			w.start(t)
			w.calls, w.fails, w.after = 0, fails, after
			w.look(t, true)
			w.moved(t, fmt.Sprintf("call %d failed, done: %v", fails, after))
			if w.calls < fails {
				break
			}
		}
	}
}

// TestAbort at each moment leaves everything as it was, or is refused.
func TestAbort(t *testing.T) {
	for fails := 1; ; fails++ {
		w := newWorld()
		w.start(t)
		w.nodes["a"].Published = false
		w.calls, w.fails = 0, fails
		w.room(t).Look(t.Context(), true)
		aborted := w.calls >= fails
		w.fails = 0
		if _, err := w.room(t).Abort(t.Context(), pvName); err != nil {
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is on node b by now") {
				t.Errorf("call %d failed: abort: %v", fails, err)
			}
			w.look(t, true)
			w.moved(t, fmt.Sprint("not aborted after call ", fails))
		} else {
			w.look(t, true)
			w.stayed(t, fmt.Sprint("aborted after call ", fails))
		}
		if !aborted {
			return
		}
	}
}

// TestClaimGoes: before the swap the volume stays, after it a PersistentVolume keeps the data.
func TestClaimGoes(t *testing.T) {
	w := newWorld()
	w.start(t)
	w.look(t, false)
	w.claim = nil
	w.look(t, false)
	w.stayed(t, "no claim")
	w = newWorld()
	w.nodes["a"].Published = false
	w.start(t)
	w.until(t, func() bool { return w.pv == nil }) // the moment between the two PersistentVolumes
	w.claim = nil
	w.look(t, true)
	if w.pv == nil || w.pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		w.nodes["b"] == nil || len(w.journal) > 0 {
		t.Errorf("%+v, %v, %v", w.pv, w.nodes, w.journal)
	}
}

// until makes one call after the other, each by a new controller, until something is so.
func (w *world) until(t *testing.T, so func() bool) {
	t.Helper()
	for !so() {
		w.fails, w.after = w.calls+1, true
		w.room(t).Look(t.Context(), true)
	}
	w.fails = 0
}

// TestSourceIsLost: of what may be the last copy of a volume the claim's is made, and none is removed.
func TestSourceIsLost(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"its disk": func(w *world) { delete(w.nodes, "a") },
		"its node": func(w *world) { w.away["a"], w.gone["a"] = true, true },
	} {
		for _, wanted := range []bool{true, false} {
			w := newWorld()
			w.nodes["a"].Published = false
			w.start(t)
			w.until(t, func() bool { return w.nodes["b"] != nil && !w.nodes["b"].GetFilling() })
			lose(w)
			node, says := "b", "Normal VolumeMoved: "
			if !wanted {
				w.claim, node, says = nil, "a", "and node b keeps the copy, which is whole"
			}
			w.look(t, true)
			if w.nodes["b"] == nil || len(w.journal) > 0 || !strings.Contains(strings.Join(w.events, ""), says) ||
				w.pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != node {
				t.Errorf("%s, claim %v: %v, journal %v, events %q, %+v", name, wanted, w.nodes, w.journal, w.events,
					w.pv)
			}
		}
	}
}

// TestTargetIsGoneBeforeTheDiscard: what the source has stays.
func TestTargetIsGoneBeforeTheDiscard(t *testing.T) {
	w := newWorld()
	w.nodes["a"].Published = false
	w.start(t)
	w.until(t, func() bool { return strings.Contains(w.journal[volume], `"phase":"discard"`) })
	w.away["b"] = true
	w.look(t, true)
	if len(w.trash) > 0 || len(w.journal) == 0 {
		t.Errorf("b is away: trash %v, journal %v", w.trash, w.journal)
	}
	w.gone["b"] = true
	w.look(t, true)
	if len(w.trash) > 0 || w.nodes["a"] == nil || len(w.journal) > 0 ||
		!strings.Contains(strings.Join(w.events, ""), "node a still has what it had") {
		t.Errorf("b is gone: trash %v, nodes %v, journal %v, events %q", w.trash, w.nodes, w.journal, w.events)
	}
}

// TestForgedJournal: who can write the ConfigMap makes no PersistentVolume of what the nodes do not know.
func TestForgedJournal(t *testing.T) {
	w := newWorld()
	w.nodes["a"].Published = false
	w.start(t)
	w.until(t, func() bool { return w.pv == nil })
	genuine := w.journal[volume]
	w.journal[volume] = strings.Replace(genuine, `"name":"data"`, `"name":"mine"`, 1)
	w.look(t, true)
	if w.pv != nil {
		t.Fatalf("it made %+v", w.pv)
	}
	var e map[string]any
	if err := json.Unmarshal([]byte(genuine), &e); err != nil || e["phase"] != string(moves.Swap) {
		t.Fatal(e["phase"], err)
	}
	w.journal[volume] = genuine
	w.nodes["b"].Move = "another"
	w.look(t, true)
	if w.pv != nil {
		t.Fatalf("it made %+v", w.pv)
	}
	w.nodes["b"].Move = w.nodes["a"].GetMove()
	w.look(t, true)
	w.moved(t, "gone on")
}

// TestNodeIsGone: a move that cannot go on says so, and ends when it is aborted.
func TestNodeIsGone(t *testing.T) {
	w := newWorld()
	w.nodes["a"].Published = false
	w.start(t)
	w.away["b"], w.gone["b"] = true, true
	w.look(t, false)
	all, err := w.room(t).List(t.Context())
	if err != nil || len(all) != 1 || all[0].GetMessage() != "node b is gone: abort the move" {
		t.Fatal(all, err)
	}
	if _, err := w.room(t).Abort(t.Context(), pvName); err != nil {
		t.Fatal(err)
	}
	w.look(t, false)
	w.stayed(t, "aborted")
}

func TestStartIsRefused(t *testing.T) {
	for says, prepare := range map[string]func(*world, *wire.StartMoveRequest){
		"is on node a already": func(_ *world, q *wire.StartMoveRequest) { q.To = "a" },
		"pool local is absent": func(w *world, _ *wire.StartMoveRequest) {
			w.problems = []string{"pool local is absent"}
		},
		"has 2 snapshots": func(w *world, _ *wire.StartMoveRequest) {
			w.nodes["a"].Snapshots = 2
		},
		"not whole yet": func(w *world, _ *wire.StartMoveRequest) {
			w.nodes["a"].Filling = true
		},
		"room for a volume of 2Gi": func(w *world, _ *wire.StartMoveRequest) {
			w.nodes["a"].Bytes = 3 << 30
		},
		"does not have the volume": func(w *world, _ *wire.StartMoveRequest) {
			delete(w.nodes, "a")
		},
		"not bound to a claim": func(w *world, _ *wire.StartMoveRequest) {
			w.pv.Status.Phase = corev1.VolumeReleased
		},
		"is not connected": func(w *world, _ *wire.StartMoveRequest) {
			w.away["a"] = true
		},
		"node a is gone: what is on its disk cannot be copied": func(w *world, _ *wire.StartMoveRequest) {
			w.away["a"], w.gone["a"] = true, true
			w.problems = []string{"node a is not connected to the controller"}
		},
		"there is no PersistentVol": func(w *world, _ *wire.StartMoveRequest) {
			w.pv = nil
		},
		"not on one node alone": func(w *world, _ *wire.StartMoveRequest) {
			w.pv.Spec.NodeAffinity = nil
		},
	} {
		w, q := newWorld(), &wire.StartMoveRequest{Pv: pvName, To: "b"}
		prepare(w, q)
		if _, err := w.room(t).Start(t.Context(), q); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		if len(w.journal) > 0 || w.calls > 0 {
			t.Errorf("%s: the journal has %v", says, w.journal)
		}
	}
}

// TestStartTwice gives the move that is under way, to the same node.
func TestStartTwice(t *testing.T) {
	w := newWorld()
	if m, err := w.room(t).Start(t.Context(), &wire.StartMoveRequest{Pv: pvName, To: "b", DryRun: true}); err != nil ||
		m.GetPhase() != "" || m.GetUsed() != 1<<20 || len(m.GetProblems()) > 0 || len(w.journal) > 0 {
		t.Error(m, err)
	}
	w.start(t)
	w.start(t)
	_, err := w.room(t).Start(t.Context(), &wire.StartMoveRequest{Pv: pvName, To: "c"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "to node b already") {
		t.Error(err)
	}
	w.pv = nil // it is being exchanged
	w.start(t)
	_, err = w.room(t).Start(t.Context(), &wire.StartMoveRequest{Pv: "pv-2", To: "b"})
	if status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// TestAbortWithoutAMove ends a mark that was left.
func TestAbortWithoutAMove(t *testing.T) {
	w := newWorld()
	w.nodes["a"].Move, w.nodes["a"].To = "old", "b"
	if m, err := w.room(t).Abort(t.Context(), pvName); err != nil || !strings.Contains(m.GetMessage(), "no move") {
		t.Fatal(m, err)
	}
	w.stayed(t, "unmarked")
}
