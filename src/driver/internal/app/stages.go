package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// stage is something that runs until its context ends.
type stage struct {
	name string
	run  func(ctx context.Context) error
}

// runStages starts stages in their order. When ctx ends or a stage does, it stops all in the reverse order, each before
// the next, and gives the errors of all.
func runStages(ctx context.Context, stages []stage) error {
	type running struct {
		stage
		cancel context.CancelFunc
		done   chan error
	}
	ended := make(chan struct{}, len(stages))
	started := make([]running, 0, len(stages))
	for _, s := range stages {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{stage: s, cancel: cancel, done: make(chan error, 1)}
		started = append(started, r)
		go func() {
			r.done <- r.run(own)
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended: // it has no business to; its error says why
	}
	var problems []error
	for _, s := range slices.Backward(started) {
		s.cancel()
		if err := <-s.done; err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(problems...)
}
