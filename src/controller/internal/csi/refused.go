package csi

import (
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// refusedMemory is for how long a node is not asked again for a volume that it has refused, refusedMost how many
	// are remembered. csi-provisioner takes a claim back from a node that answers ResourceExhausted, and asks again at
	// once: where the same node is the roomiest again, without any pause.
	refusedMemory = time.Minute
	refusedMost   = 4096
)

// refusals are the nodes that refused a volume, by its name.
type refusals struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]refusal
}

type refusal struct {
	node, message string
	at            time.Time
}

// note remembers the answer of a node that sends a claim elsewhere.
func (r *refusals) note(name, node string, answer error) {
	if status.Code(answer) != codes.ResourceExhausted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if len(r.all) >= refusedMost {
		maps.DeleteFunc(r.all, func(_ string, was refusal) bool { return now.Sub(was.at) >= refusedMemory })
	}
	if len(r.all) < refusedMost {
		r.all[name] = refusal{node: node, message: status.Convert(answer).Message(), at: now}
	}
}

// check refuses to choose a node that has refused just now.
func (r *refusals) check(name, node string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.all[name]
	if !ok || was.node != node || r.now().Sub(was.at) >= refusedMemory {
		return nil
	}
	return status.Errorf(codes.Unavailable, "node %s has the most room and refused volume %s less than a minute ago; "+
		"it is asked again after that: %s", node, name, was.message)
}
