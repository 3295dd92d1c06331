package fleet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/places"
)

const (
	// maxUnauthenticated bounds the connections that have not shown who they are yet: anything in the cluster may dial.
	maxUnauthenticated = 512
	// maxUnproven bounds what is read of such a connection, in bytes. TLS and a first message with a token have some 4
	// KiB.
	maxUnproven = 16 << 10
	// refusalInterval is how often those that were refused are logged.
	refusalInterval = time.Second
)

var errCrowded = errors.New("all places of connections that have not shown who they are were taken, most of them by " +
	"its address")

// unauthenticated are the connections whose tokens have not passed.
type unauthenticated struct{ *places.Places[*newcomer] }

// newcomer is a connection of which no more than maxUnproven bytes are read until it is known.
type newcomer struct {
	net.Conn
	address string
	end     context.CancelCauseFunc
	left    int // bytes; only the one reader of the connection uses it
	known   chan struct{}
	once    sync.Once
	closed  chan struct{}
	ended   chan struct{} // its goroutine, and what that held
}

// isKnown reports whether its token has passed.
func (n *newcomer) isKnown() bool {
	select {
	case <-n.known:
		return true
	default:
		return false
	}
}

// add gives a connection a place. It waits until whoever had that holds nothing any more.
func (u unauthenticated) add(conn net.Conn, end context.CancelCauseFunc) *newcomer {
	n := &newcomer{
		Conn: conn, address: places.AddressOf(conn), end: end, left: maxUnproven,
		known: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	if out, crowded := u.Add(n.address, n); crowded {
		out.end(errCrowded)
		_ = out.Close()
		<-out.ended
	}
	return n
}

// remove reports whether a connection still had its place, which is free then.
func (u unauthenticated) remove(n *newcomer) bool { return u.Remove(n.address, n) }

// Read implements net.Conn. What comes beyond a newcomer's share waits until it is known: a node may follow its first
// message with more at once.
func (n *newcomer) Read(p []byte) (int, error) {
	if n.isKnown() {
		return n.Conn.Read(p)
	}
	if n.left > 0 {
		count, err := n.Conn.Read(p[:min(len(p), n.left)])
		n.left -= count
		return count, err
	}
	select {
	case <-n.known:
		return n.Conn.Read(p)
	case <-n.closed:
		return 0, io.ErrClosedPipe
	}
}

func (n *newcomer) Close() error {
	n.once.Do(func() { close(n.closed) })
	return n.Conn.Close()
}

// refusals are those of the last second, for one line of the log.
type refusals struct {
	mu      sync.Mutex
	count   int
	address string
	err     error
}

func (r *refusals) add(address string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.address, r.err = address, err
}

// logRegularly writes, from time to time, how many there were and what was wrong with the last, until ctx ends.
func (r *refusals) logRegularly(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(refusalInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		count, address, err := r.count, r.address, r.err
		r.count = 0
		r.mu.Unlock()
		if count > 0 {
			log.WarnContext(ctx, "connections have ended before they showed a node's token; address and error are the "+
				"last's", logging.KeyCount, count, logging.KeyAddress, address, logging.KeyError, err)
		}
	}
}
