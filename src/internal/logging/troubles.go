package logging

import (
	"maps"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
)

// troublesEvery is how often a trouble that lasts is logged.
const troublesEvery = time.Minute

// Troubles are what was logged last: what repeats itself is logged again only after a minute. The zero value is ready.
// Its method is safe for concurrent use.
type Troubles struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Fresh reports whether a trouble is to be logged. Numbers, such as a port, do not make it another.
func (t *Troubles) Fresh(where string, err error) bool {
	key, now := where+"\x00"+abridge.WithoutNumbers(err.Error()), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.last, func(_ string, at time.Time) bool { return now.Sub(at) >= troublesEvery })
	_, known := t.last[key]
	if t.last == nil {
		t.last = map[string]time.Time{}
	}
	if !known {
		t.last[key] = now
	}
	return !known
}
