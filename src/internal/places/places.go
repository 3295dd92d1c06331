// Package places bounds how many strangers are served at once.
package places

import (
	"net"
	"slices"
	"sync"
)

// Places are those of connections. Nobody is refused one: the oldest of the address that has most gives its own up. An
// address says little: a mesh or a masquerading network may make all nodes one.
type Places[T comparable] struct {
	most int

	mu        sync.Mutex
	count     int
	byAddress map[string][]T // oldest first
}

// New has so many places.
func New[T comparable](most int) *Places[T] {
	return &Places[T]{most: most, byAddress: map[string][]T{}}
}

// Add gives somebody a place, and says who has lost theirs for it, where all were taken.
func (p *Places[T]) Add(address string, one T) (out T, crowded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if crowded = p.count >= p.most; crowded {
		fullest := address
		for other, all := range p.byAddress {
			if len(all) > len(p.byAddress[fullest]) {
				fullest = other
			}
		}
		out = p.byAddress[fullest][0]
		p.removeLocked(fullest, out)
	}
	p.count++
	p.byAddress[address] = append(p.byAddress[address], one)
	return out, crowded
}

// Remove reports whether somebody still had their place, which is free then.
func (p *Places[T]) Remove(address string, one T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removeLocked(address, one)
}

func (p *Places[T]) removeLocked(address string, one T) bool {
	all := p.byAddress[address]
	i := slices.Index(all, one)
	if i < 0 {
		return false
	}
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(p.byAddress, address)
	} else {
		p.byAddress[address] = all
	}
	p.count--
	return true
}

// Count is how many places are taken.
func (p *Places[T]) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// AddressOf is the address of who has dialled, without the port.
func AddressOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
