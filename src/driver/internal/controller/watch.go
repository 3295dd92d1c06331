package controller

import (
	"context"
	"time"
)

// explainInterval is how often claims that wait are looked at.
const explainInterval = 5 * time.Second

// Run looks after claims that wait until ctx ends.
func (s *Server) Run(ctx context.Context) {
	s.Fleet.AwaitSync(ctx)
	tick := time.NewTicker(explainInterval)
	defer tick.Stop()
	told := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			told = s.explain(told)
		}
	}
}
