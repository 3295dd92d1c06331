package link

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
)

// backoff spreads the nodes of a cluster whose controller has come back: over half a second to 5, at last over 3 to 30.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 9, Steps: 6, Cap: 3 * time.Second}
}

// troubles are what was logged last: what repeats itself is logged again only after a while.
type troubles struct {
	every time.Duration

	mu   sync.Mutex
	last map[string]time.Time
}

// isFresh reports whether a trouble is to be logged. Numbers, such as a port, do not make it another.
func (t *troubles) isFresh(where string, err error) bool {
	what := abridge.WithoutNumbers(err.Error())
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(t.last, func(_ string, at time.Time) bool { return now.Sub(at) >= t.every })
	_, known := t.last[where+what]
	if !known {
		t.last[where+what] = now
	}
	return !known
}
