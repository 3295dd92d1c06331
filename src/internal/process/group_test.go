package process_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

func TestPartsStopInReverse(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	var running sync.WaitGroup
	var group process.Group
	for _, name := range []string{"first", "second", "third"} {
		running.Add(1)
		group.Add(name, func(ctx context.Context) error {
			running.Done()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, name)
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	group.OnClose(func() error { stopped = append(stopped, "closed"); return nil })
	go func() { running.Wait(); cancel() }()
	if err := group.Run(ctx); err != nil {
		t.Error(err)
	}
	if want := []string{"third", "second", "first", "closed"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
}

func TestAFailingPartStopsAll(t *testing.T) {
	stopped := false
	var group process.Group
	group.Add("steady", func(ctx context.Context) error {
		<-ctx.Done()
		stopped = true
		return errors.New("hard to stop")
	})
	group.Add("broken", func(context.Context) error { return errors.New("no luck") })
	err := group.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "broken: no luck") ||
		!strings.Contains(err.Error(), "steady: hard to stop") || !stopped {
		t.Errorf("got %v, stopped %v", err, stopped)
	}
}

func TestWhatNeverRanIsClosed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group process.Group
	group.AddListener("health", listener, func(context.Context, net.Listener) error { panic("nobody runs it") })
	group.OnClose(func() error { return errors.New("no luck") })
	if err := group.Close(); err == nil || err.Error() != "no luck" {
		t.Errorf("got %v", err)
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was open: %v", err)
	}
}
