package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
)

// Group is what runs in a process, in the order of its start. The libraries for this (errgroup, oklog/run) stop all at
// once; here a socket answers until what is behind it has ended. The zero value is empty.
type Group struct {
	parts   []part
	closers []func() error
}

// part runs until its context ends.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// Server answers on an address or socket of its own.
type Server interface {
	Listen(ctx context.Context) (net.Listener, error)
	Serve(ctx context.Context, listener net.Listener) error
}

// Add adds something that runs until its context ends.
func (g *Group) Add(name string, run func(ctx context.Context) error) {
	g.parts = append(g.parts, part{name, run})
}

// AddServer adds a server, which takes its address now, so that what is wrong with it is said before anything runs.
func (g *Group) AddServer(ctx context.Context, name string, s Server) error {
	listener, err := s.Listen(ctx)
	if err == nil {
		g.AddListener(name, listener, s.Serve)
	}
	return err
}

// AddListener adds something that answers on a listener; should it never come to run, the listener is closed.
func (g *Group) AddListener(name string, listener net.Listener, serve func(context.Context, net.Listener) error) {
	g.OnClose(func() error {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("close the listener of %s: %w", name, err)
		}
		return nil
	})
	g.Add(name, func(ctx context.Context) error { return serve(ctx, listener) })
}

// OnClose adds the end of something that is open but does not run. What was opened last is closed first.
func (g *Group) OnClose(end func() error) { g.closers = append(g.closers, end) }

// Close ends what is open.
func (g *Group) Close() error {
	var problems []error
	for _, end := range slices.Backward(g.closers) {
		problems = append(problems, end())
	}
	return errors.Join(problems...)
}

// Run starts all parts in their order. When ctx ends or a part does, it stops all in the reverse order, each before the
// next, closes what is open, and gives the errors of all.
func (g *Group) Run(ctx context.Context) error {
	type running struct {
		part
		cancel context.CancelFunc
		done   chan error
	}
	ended := make(chan struct{}, len(g.parts))
	started := make([]running, 0, len(g.parts))
	for _, p := range g.parts {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{part: p, cancel: cancel, done: make(chan error, 1)}
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
	for _, r := range slices.Backward(started) {
		r.cancel()
		if err := <-r.done; err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return errors.Join(append(problems, g.Close())...)
}
