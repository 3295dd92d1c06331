package link

import (
	"net"
	"sync"
)

type single struct {
	conn     net.Conn
	accepted sync.Once
	end      sync.Once
	closed   chan struct{}
}

// NewSingle is a listener of one connection that is there already: it accepts that, and nothing more until it closes.
func NewSingle(conn net.Conn) net.Listener { return &single{conn: conn, closed: make(chan struct{})} }

// Accept gives the connection at the first call; the next one waits for its end.
func (s *single) Accept() (conn net.Conn, err error) {
	s.accepted.Do(func() { conn = connection{s.conn, s} })
	if conn != nil {
		return conn, nil
	}
	<-s.closed
	return nil, net.ErrClosed
}

// Close leaves the connection open: gRPC closes its listeners first when it stops in order.
func (s *single) Close() error {
	s.end.Do(func() { close(s.closed) })
	return nil
}

func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

// connection ends its listener with itself.
type connection struct {
	net.Conn
	listener *single
}

func (c connection) Close() error {
	_ = c.listener.Close()
	return c.Conn.Close()
}
