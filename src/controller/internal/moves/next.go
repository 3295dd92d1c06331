package moves

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// where is a PersistentVolume of the move's name.
type where int

const (
	nowhere where = iota // there is none
	atSource
	atTarget
	foreign // it is of another volume
)

// bond is how the claim is.
type bond int

const (
	unclaimed bond = iota // it is gone, or another one
	lost                  // its PersistentVolume is gone
	bound
)

// side is the volume on one of the two nodes.
type side struct {
	known     bool   // the node has answered
	why       string // it has not
	gone      bool   // there is no such node any more
	there     bool
	filling   bool
	published bool
	move      string // by which it leaves, or came
}

// lost reports whether a node that should have the volume will not have it again.
func (s side) lost() bool { return s.gone || s.known && !s.there }

// facts are what a move is decided by.
type facts struct {
	pv             where
	ending         bool   // somebody has deleted the PersistentVolume
	changed        string // how it is not what it was when the move began
	policy         corev1.PersistentVolumeReclaimPolicy
	claim          bond
	source, target side
}

// verb is a step of a move.
type verb string

const (
	wait       verb = "wait"
	advance    verb = "advance" // to another phase
	retain     verb = "retain"
	mark       verb = "mark"
	copyData   verb = "copy"
	removePV   verb = "remove the PersistentVolume"
	makePV     verb = "make the PersistentVolume"
	makeOldPV  verb = "make the old PersistentVolume again"
	touch      verb = "touch the claim"
	discard    verb = "discard"
	restore    verb = "restore"
	removeCopy verb = "remove the copy"
	stay       verb = "stay"
	finish     verb = "finish"
)

// action is what is to be done next, and with which words the journal says so.
type action struct {
	do    verb
	to    Phase
	says  string
	keeps bool // the reclaim policy stays Retain
}

// next decides about a move by nothing but what is known of it.
func next(e entry, f facts) action {
	if why := f.broken(); e.abortable() && why != "" {
		return action{do: advance, to: Abort, says: why}
	}
	decide, known := map[Phase]func(entry, facts) action{
		Retain: nextRetain, Leave: nextLeave, Copy: nextCopy, Swap: nextSwap, Discard: nextDiscard,
		Restore: nextRestore, Abort: nextAbort,
	}[e.Phase]
	if !known {
		return action{do: wait, says: fmt.Sprintf("phase %.64q is of another version of the controller", e.Phase)}
	}
	return decide(e, f)
}

func nextRetain(_ entry, f facts) action {
	if f.policy != corev1.PersistentVolumeReclaimRetain {
		return action{do: retain}
	}
	return action{do: advance, to: Leave}
}

func nextRestore(e entry, f facts) action {
	switch {
	case f.pv == atTarget && f.policy != e.Policy:
		return action{do: restore}
	case f.source.there && f.source.move == e.Move:
		return action{do: finish, says: fmt.Sprintf("the volume was moved to node %s, which is gone since: node %s "+
			"still has what it had, see docs/how-to/lose-a-node.md#the-node-is-gone", e.To, e.From)}
	}
	return action{do: finish}
}

// nextDiscard gives up what the source has, once the target shows that it has it too.
func nextDiscard(e entry, f facts) action {
	switch s := f.source; {
	case s.lost(), s.known && s.move != e.Move, f.target.gone:
		return action{do: advance, to: Restore}
	case !s.known:
		return action{do: wait, says: s.why}
	case !f.target.known:
		return action{do: wait, says: f.target.why}
	case !f.whole(e):
		return action{do: wait, says: fmt.Sprintf("node %s does not have what it had: node %s keeps what it has", e.To,
			e.From)}
	}
	return action{do: discard}
}

// broken is why a volume stays where it is.
func (f facts) broken() string {
	switch {
	case f.pv != atSource:
		return "its PersistentVolume is gone, or another one"
	case f.ending:
		return "its PersistentVolume is being deleted"
	case f.changed != "":
		return f.changed
	case f.claim == unclaimed:
		return "its claim is gone"
	}
	return ""
}

func nextLeave(e entry, f facts) action {
	switch {
	case !f.source.known:
		return action{do: wait, says: f.source.why}
	case f.source.move != e.Move:
		return action{do: mark}
	case f.source.published:
		return action{do: wait, says: "it waits until no pod on node " + e.From + " has it"}
	}
	return action{do: advance, to: Copy}
}

func nextCopy(e entry, f facts) action {
	switch {
	case f.source.lost() && f.whole(e): // there is no other
		return action{do: advance, to: Swap}
	case !f.source.known:
		return action{do: wait, says: f.source.why}
	case f.source.move != e.Move:
		return action{do: advance, to: Abort, says: "it is not marked on node " + e.From + " any more, so that a pod " +
			"may have changed it"}
	case f.source.published:
		return action{do: wait, says: "it waits until no pod on node " + e.From + " has it"}
	case !f.target.known:
		return action{do: wait, says: f.target.why}
	case f.target.there && f.target.move != e.Move:
		return action{do: advance, to: Abort, says: "node " + e.To + " has something else of that id"}
	case !f.target.there || f.target.filling:
		return action{do: copyData}
	}
	return action{do: advance, to: Swap}
}

// whole reports whether all is where the new PersistentVolume says it is.
func (f facts) whole(e entry) bool {
	return f.target.known && f.target.there && !f.target.filling && f.target.move == e.Move
}

func nextSwap(e entry, f facts) action {
	switch f.pv {
	case atSource:
		return nextRemovePV(e, f)
	case atTarget:
		switch f.claim {
		case unclaimed:
			return action{do: advance, to: Discard, keeps: true}
		case lost:
			return action{do: touch}
		case bound:
		}
		return action{do: advance, to: Discard}
	case foreign:
	case nowhere:
		return nextMakePV(e, f)
	}
	return action{do: wait, says: "PersistentVolume " + e.PV + " is one of another volume"}
}

func nextMakePV(e entry, f facts) action {
	switch {
	case f.whole(e):
		return action{do: makePV}
	case f.target.lost() && f.source.known && f.source.move == e.Move:
		return action{do: makeOldPV}
	case !f.target.known:
		return action{do: wait, says: f.target.why}
	}
	return action{do: wait, says: "node " + e.To + " does not have what it had"}
}

// nextRemovePV is the last moment at which the volume may stay where it is.
func nextRemovePV(e entry, f facts) action {
	switch {
	case f.changed != "":
		return action{do: advance, to: Abort, says: f.changed}
	case f.policy != corev1.PersistentVolumeReclaimRetain: // somebody has changed it since
		return action{do: retain}
	case f.ending:
		return action{do: removePV}
	case f.claim == unclaimed:
		return action{do: advance, to: Abort, says: "its claim is gone"}
	case f.source.lost() && f.whole(e):
		return action{do: removePV}
	case !f.source.known:
		return action{do: wait, says: f.source.why}
	case f.source.move != e.Move || f.source.published || !f.whole(e):
		return action{do: advance, to: Copy}
	}
	return action{do: removePV}
}

func nextAbort(e entry, f facts) action {
	switch s := f.source; {
	case s.gone:
	case !s.known:
		return action{do: wait, says: s.why}
	case s.there && s.move == e.Move:
		return action{do: stay}
	}
	switch {
	case f.pv == atSource && f.policy != e.Policy:
		return action{do: restore}
	case f.pv == atTarget: // it is not reached
		return action{do: wait, says: "PersistentVolume " + e.PV + " is on node " + e.To}
	}
	return nextWithoutCopy(e, f)
}

// nextWithoutCopy removes what was copied, unless that may be all there is.
func nextWithoutCopy(e entry, f facts) action {
	switch t := f.target; {
	case t.gone, t.known && (!t.there || t.move != e.Move):
		return action{do: finish}
	case !t.known:
		return action{do: wait, says: t.why}
	case f.source.lost() && f.whole(e):
		return action{do: finish, says: fmt.Sprintf("node %s has lost the volume, and node %s keeps the copy, which "+
			"is whole: delete claim and PersistentVolume, then kubectl hpp adopt %s --node %s", e.From, e.To, e.Handle,
			e.To)}
	}
	return action{do: removeCopy}
}
