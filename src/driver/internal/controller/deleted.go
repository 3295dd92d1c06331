package controller

import (
	"maps"
	"time"
)

const (
	// deletedMemory is how long a deletion is remembered, deletedMost how many are. A provisioner often deletes twice: the
	// second time nobody has the volume, and without the memory all nodes are asked, and the API for all it has.
	deletedMemory = 10 * time.Minute
	deletedMost   = 4096
)

// deletion is one that is under way, or that a node has confirmed.
type deletion struct {
	pv   string    // UID of the PersistentVolume, "" without one
	done time.Time // zero while it is under way
}

// beginDeletion notes that a volume is being deleted, and reports whether it was already, and nothing has come in its
// place: the PersistentVolume that is known is the same, or gone.
func (s *Server) beginDeletion(id string) (begun *deletion, done bool) {
	pv := ""
	known := s.PVs.Known(id)
	if len(known) > 0 {
		pv = known[0].UID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if was := s.deleted[id]; was != nil && !was.done.IsZero() && now.Sub(was.done) < deletedMemory &&
		(len(known) == 0 || was.pv == pv) {
		return was, true
	}
	if len(s.deleted) >= deletedMost {
		maps.DeleteFunc(s.deleted, func(_ string, d *deletion) bool { return now.Sub(d.done) >= deletedMemory })
	}
	begun = &deletion{pv: pv}
	if pv != "" && len(s.deleted) < deletedMost { // without one, nothing says which volume is meant
		s.deleted[id] = begun
	}
	return begun, false
}

// endDeletion remembers a deletion that the volume's node has confirmed, unless a volume of that id was asked for
// meanwhile.
func (s *Server) endDeletion(id string, begun *deletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted[id] == begun {
		begun.done = s.Now()
	}
}

// forgetDeletion is for a volume that is made: whoever deletes it next means this one.
func (s *Server) forgetDeletion(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.deleted, id)
}
