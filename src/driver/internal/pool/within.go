package pool

import (
	"context"
	"fmt"
	"time"
)

// Within is Use for who can do without a pool: one that hangs is given up after a limit, with
// context.DeadlineExceeded, and at once while it has not answered somebody who gave it up before. do goes on meanwhile,
// so nothing but its result may leave it.
func Within[T any](
	ctx context.Context, s *Set, name string, limit time.Duration, do func(*Open) (T, error),
) (result T, err error) {
	p := s.find(name)
	if p != nil && p.givenUp.Load() > 0 {
		return result, hangs(name)
	}
	type answer struct {
		result T
		err    error
	}
	given := make(chan answer, 1)
	go func() {
		var a answer
		a.err = s.Use(ctx, name, func(o *Open) (err error) {
			a.result, err = do(o)
			return err
		})
		given <- a
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-given:
		return a.result, a.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = hangs(name)
	}
	if p != nil {
		p.givenUp.Add(1)
		go func() {
			<-given
			p.givenUp.Add(-1)
		}()
	}
	return result, err
}

// silence is for how long a pool may not have been seen: it is looked at every interval.
const silence = 30 * time.Second

// hangs reports whether the pool's filesystem keeps somebody waiting: a call that was given up, or whoever looks at it.
func (p *Pool) hangs() bool {
	seen := p.known().seen
	return p.givenUp.Load() > 0 || !seen.IsZero() && p.set.Now().Sub(seen) > silence
}

func hangs(name string) error {
	return fmt.Errorf("pool %s does not answer: %w; see what its disk or server does", name, context.DeadlineExceeded)
}
