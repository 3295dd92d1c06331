package places

import (
	"net"
	"sync"
)

// Listen bounds the connections of a listener that anybody may dial.
func Listen(listener net.Listener, most int) net.Listener {
	return &bounded{Listener: listener, places: New[*connection](most)}
}

type bounded struct {
	net.Listener
	places *Places[*connection]
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address := AddressOf(conn)
	c := &connection{Conn: conn}
	c.leave = sync.OnceFunc(func() { b.places.Remove(address, c) })
	if out, crowded := b.places.Add(address, c); crowded {
		_ = out.Close()
	}
	return c, nil
}

type connection struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.leave()
	return c.Conn.Close()
}
