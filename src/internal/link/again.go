package link

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// backoff spreads the nodes of a cluster whose controller has come back: over half a second to 5, at last over 3 to 30.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 9, Steps: 6, Cap: 3 * time.Second}
}
