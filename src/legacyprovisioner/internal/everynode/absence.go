package everynode

import (
	"sync"
	"time"
)

// recall is how long it is remembered that a node was absent when nobody has asked since: a removal that waits for a
// node asks more often.
const recall = 5 * time.Minute

// absences knows since when nodes have no Node object.
type absences struct {
	mu  sync.Mutex
	all map[string]absence
}

type absence struct{ since, asked time.Time }

// lasted is for how long it is known that a node is absent, which it is now.
func (a *absences) lasted(node string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]absence{}
	}
	known, found := a.all[node]
	if !found || now.Sub(known.asked) > recall {
		known.since = now
	}
	known.asked = now
	a.all[node] = known
	return now.Sub(known.since)
}

// endAbsence is for a node that is there.
func (a *absences) endAbsence(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, node)
}
