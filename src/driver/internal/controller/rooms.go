package controller

import (
	"context"
	"maps"
	"time"
)

// room is whether a node that has left something in a shared pool will not come back.
type room struct {
	lost  bool
	asked time.Time
}

const (
	// roomMemory is how long that is good, roomsAtOnce how many the API is asked about in a second.
	roomMemory, roomsAtOnce = 5 * time.Minute, 10
)

// goneFrom are those nodes that have been without a Node object for long enough. The names are a node's word: a few are
// looked up at a time, and the answers are remembered.
func (s *Server) goneFrom(ctx context.Context, known *sharing, names []string) (gone []string) {
	now := s.Now()
	maps.DeleteFunc(known.rooms, func(_ string, r room) bool { return now.Sub(r.asked) >= roomMemory })
	asked := 0
	for _, node := range names {
		if s.Fleet.Get(node) != nil {
			continue
		}
		r, ok := known.rooms[node]
		if !ok && asked < roomsAtOnce {
			asked++
			lost, err := s.Fleet.IsGone(ctx, node)
			if err != nil {
				continue
			}
			r = room{lost, now}
			known.rooms[node] = r
		}
		if r.lost {
			gone = append(gone, node)
		}
	}
	return gone
}
