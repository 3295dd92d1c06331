package tunnel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// maxStrangers bounds the connections that have not shown who they are yet: anything in the cluster may dial.
	maxStrangers = 512
	// maxUnproven bounds what is read of such a connection, in bytes. TLS and a first message with a token have some 4
	// KiB.
	maxUnproven = 16 << 10
	// refusalInterval is how often strangers are logged.
	refusalInterval = time.Second
)

var errCrowded = errors.New("all places of connections that have not shown who they are were taken, most of them by " +
	"its address")

// strangers are the connections whose tokens have not passed. Nobody is refused a place: the oldest of the address that
// has most gives its own up. An address says little: a mesh or a masquerading network may make all nodes one.
type strangers struct {
	most int

	mu        sync.Mutex
	count     int
	byAddress map[string][]*stranger // oldest first
}

// stranger is a connection of which no more than maxUnproven bytes are read until it is known.
type stranger struct {
	net.Conn
	address string
	end     context.CancelCauseFunc
	left    int // bytes; only the one reader of the connection uses it
	known   chan struct{}
	once    sync.Once
	closed  chan struct{}
	ended   chan struct{} // its goroutine, and what that held
}

// enter gives a connection a place. It waits until whoever had that holds nothing any more.
func (s *strangers) enter(conn net.Conn, end context.CancelCauseFunc) *stranger {
	n := &stranger{
		Conn: conn, address: host(conn), end: end, left: maxUnproven,
		known: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	s.mu.Lock()
	var out *stranger
	if s.count >= s.most {
		fullest := n.address
		for address, all := range s.byAddress {
			if len(all) > len(s.byAddress[fullest]) {
				fullest = address
			}
		}
		out = s.byAddress[fullest][0]
		s.remove(out)
	}
	s.count++
	s.byAddress[n.address] = append(s.byAddress[n.address], n)
	s.mu.Unlock()
	if out != nil {
		out.end(errCrowded)
		_ = out.Close()
		<-out.ended
	}
	return n
}

// leave reports whether a connection still had its place, which is free then.
func (s *strangers) leave(n *stranger) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(n)
}

func (s *strangers) remove(n *stranger) bool {
	all := s.byAddress[n.address]
	i := slices.Index(all, n)
	if i < 0 {
		return false
	}
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(s.byAddress, n.address)
	} else {
		s.byAddress[n.address] = all
	}
	s.count--
	return true
}

// host is the address of who has dialled, without the port.
func host(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Read implements net.Conn. What a stranger sends beyond its share waits until it is known: a node may follow its first
// message with more at once.
func (n *stranger) Read(p []byte) (int, error) {
	select {
	case <-n.known:
		return n.Conn.Read(p)
	default:
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

// Close implements net.Conn.
func (n *stranger) Close() error {
	n.once.Do(func() { close(n.closed) })
	return n.Conn.Close()
}

// refusals are the strangers of the last second, for one line of the log.
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

// log writes, from time to time, how many there were and what was wrong with the last, until ctx ends.
func (r *refusals) log(ctx context.Context, log *slog.Logger) {
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
			log.WarnContext(ctx, "connections have ended before they showed a node's token; address and error are the last's",
				logging.KeyCount, count, logging.KeyAddress, address, logging.KeyError, err)
		}
	}
}
