package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestStagesStopInReverse(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	var running sync.WaitGroup
	waits := func(name string) stage {
		running.Add(1)
		return stage{name, func(ctx context.Context) error {
			running.Done()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, name)
			return nil
		}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stages := []stage{waits("first"), waits("second"), waits("third")}
	go func() { running.Wait(); cancel() }()
	if err := runStages(ctx, stages); err != nil {
		t.Error(err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
}

func TestAFailingStageStopsAll(t *testing.T) {
	stopped := false
	err := runStages(t.Context(), []stage{
		{"steady", func(ctx context.Context) error { <-ctx.Done(); stopped = true; return errors.New("hard to stop") }},
		{"broken", func(context.Context) error { return errors.New("no luck") }},
	})
	if err == nil || !strings.Contains(err.Error(), "broken: no luck") ||
		!strings.Contains(err.Error(), "steady: hard to stop") || !stopped {
		t.Errorf("got %v, stopped %v", err, stopped)
	}
}
