package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/places"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestTurns: an address that waits for much does not make another wait for all of it.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns := newTurns()
	turns.free = 1
	if err := turns.takeTurn(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	served := make(chan string)
	waits := func(count int) {
		waittest.Until(t, fmt.Sprintf("%d wait", count), func() bool {
			turns.mu.Lock()
			defer turns.mu.Unlock()
			all := 0
			for _, w := range turns.waiting {
				all += len(w)
			}
			return all >= count
		})
	}
	for i, address := range []string{"a", "a", "a", "b", "c", "a", "b"} {
		go func() {
			if err := turns.takeTurn(t.Context(), address); err != nil {
				t.Error(err)
			}
			served <- address
		}()
		waits(i + 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { gone <- turns.takeTurn(ctx, "d") }()
	waits(8)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	var order []string
	for range 7 {
		turns.giveTurn()
		order = append(order, <-served)
	}
	if want := []string{"a", "b", "c", "a", "b", "a", "a"}; !slices.Equal(order, want) {
		t.Errorf("served were %v, want %v", order, want)
	}
	turns.giveTurn()
	if turns.free != 1 || len(turns.waiting) != 0 || len(turns.order) != 0 {
		t.Errorf("%d are free, waiting are %v", turns.free, turns.waiting)
	}
}

// from is a connection of an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

// TestPlaces: with all places taken the oldest newcomer of the fullest address goes.
func TestPlaces(t *testing.T) {
	t.Parallel()
	all := unauthenticated{places.New[*newcomer](4)}
	var gone []*newcomer
	enter := func(address string) (n *newcomer) {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		n = all.add(from{near, address}, func(err error) {
			if !errors.Is(err, errCrowded) {
				t.Errorf("ended for %v", err)
			}
			gone = append(gone, n)
			close(n.ended)
		})
		return n
	}
	a1, b1, a2, a3 := enter("10.0.0.1"), enter("10.0.0.2"), enter("10.0.0.1"), enter("10.0.0.1")
	if len(gone) > 0 {
		t.Fatal("somebody had to go too early")
	}
	b2 := enter("10.0.0.2") // a1 goes
	c1 := enter("10.0.0.3") // a2 or b1
	if len(gone) != 2 || gone[0] != a1 || gone[1] != a2 && gone[1] != b1 || all.Count() != 4 {
		t.Errorf("gone are %v", gone)
	}
	if _, err := a1.Read(make([]byte, 1)); err == nil || all.remove(a1) {
		t.Errorf("who had to go is still there: %v", err)
	}
	for _, n := range []*newcomer{a3, b2, c1} {
		if !all.remove(n) {
			t.Errorf("%s has lost its place", n.address)
		}
	}
}

// TestANewcomerIsReadInPart: no more than its share is read until it is known, and nothing is lost.
func TestANewcomerIsReadInPart(t *testing.T) {
	t.Parallel()
	all := unauthenticated{places.New[*newcomer](4)}
	near, far := net.Pipe()
	n := all.add(near, func(error) {})
	sent, said := make(chan int, 1), make([]byte, 3*maxUnproven)
	go func() { count, _ := far.Write(said); sent <- count }()
	buffer := make([]byte, len(said))
	got := 0
	for got < maxUnproven {
		count, err := n.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got += count
	}
	if got != maxUnproven {
		t.Errorf("%d bytes were read of a newcomer", got)
	}
	more := make(chan int)
	go func() { count, _ := n.Read(buffer); more <- count }()
	close(n.known)
	if got += <-more; got != len(said) || <-sent != len(said) {
		t.Errorf("%d bytes have come of %d", got, len(said))
	}
	_ = n.Close()
	_ = far.Close()
}
