package csitest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Node is a node with its CSI service.
type Node struct {
	linktest.Node
	pb.UnimplementedControllerServer
	Absent sync.Map // "pool" is there when a pool is absent

	mu     sync.Mutex
	calls  []string
	facts  string                                       // of the last call that may have some
	answer func(ctx context.Context, call string) error // nil: done
	Lie    func(*pb.Volume)                             // changes what is answered about a new volume

	snapshots     []*pb.Snapshot
	Cut           time.Time          // of new snapshots
	LieOfSnapshot func(*pb.Snapshot) // changes what is answered about a new one
	ListsAll      bool               // whatever it is asked for

	Batches []*wire.Batch    // of each of its snapshots
	fills   map[string]*fill // that were begun, by volume
}

// NewNode makes a node with room in the pool local, in bytes.
func NewNode(name string, room int64) *Node {
	n := &Node{Node: linktest.Node{Name: name}, fills: map[string]*fill{}}
	n.Register = func(r grpc.ServiceRegistrar) {
		pb.RegisterControllerServer(r, n)
		wire.RegisterCopiesServer(r, copies{Node: n})
	}
	n.Search = func(_ context.Context, id string) (bool, error) {
		if _, absent := n.Absent.Load("pool"); absent {
			return false, errors.New("pool local is absent")
		}
		return n.Has(id), nil
	}
	n.Show(nodeapi.PoolStatus{Name: "local", Growable: room, Allocatable: room, State: "present"})
	return n
}

func (n *Node) called(ctx context.Context, call string) error {
	n.mu.Lock()
	n.calls = append(n.calls, call)
	answer := n.answer
	n.mu.Unlock()
	if answer != nil {
		return answer(ctx, call)
	}
	return nil
}

// Asked are the calls since the last time.
func (n *Node) Asked() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := strings.Join(n.calls, ", ")
	n.calls = nil
	return calls
}

// heard notes what a call about a volume says of its PersistentVolume.
func (n *Node) heard(ctx context.Context, id string) {
	pv, named, known := wire.VolumeOf(ctx, id)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.facts = ""
	if known {
		n.facts = fmt.Sprintf("%v %s %v %v", named, pv.Name, pv.Nodes, pv.Here)
	}
}

// Facts are what the last call to delete or expand a volume said of its PersistentVolume, "" for nothing.
func (n *Node) Facts() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.facts
}

// Answers sets what calls are answered, nil for done.
func (n *Node) Answers(answer func(ctx context.Context, call string) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

// CreateVolume implements csi.ControllerServer.
func (n *Node) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	here := q.GetAccessibilityRequirements().GetRequisite()
	if len(here) != 1 || here[0].GetSegments()[linktest.TopologyKey] != n.Name {
		return nil, status.Errorf(codes.Internal, "asked for %v", here)
	}
	if err := n.called(ctx, "create "+q.GetName()); err != nil {
		return nil, err
	}
	bytes := q.GetCapacityRange().GetRequiredBytes()
	n.Put(nodeapi.VolumeStatus{ID: q.GetName(), Pool: "local", Bytes: bytes})
	if err := n.awaitsData(ctx, q); err != nil {
		return nil, err
	}
	answer := &pb.CreateVolumeResponse{Volume: &pb.Volume{
		VolumeId: q.GetName(), AccessibleTopology: here, CapacityBytes: bytes,
		ContentSource: q.GetVolumeContentSource(),
	}}
	if n.Lie != nil {
		n.Lie(answer.GetVolume())
	}
	return answer, nil
}

// DeleteVolume implements csi.ControllerServer.
func (n *Node) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	n.heard(ctx, q.GetVolumeId())
	err := n.called(ctx, "delete "+q.GetVolumeId())
	if err == nil {
		n.Remove(q.GetVolumeId())
	}
	return &pb.DeleteVolumeResponse{}, err
}

// ControllerExpandVolume implements csi.ControllerServer.
func (n *Node) ControllerExpandVolume(
	ctx context.Context, q *pb.ControllerExpandVolumeRequest,
) (*pb.ControllerExpandVolumeResponse, error) {
	n.heard(ctx, q.GetVolumeId())
	return &pb.ControllerExpandVolumeResponse{CapacityBytes: 7}, n.called(ctx, "expand "+q.GetVolumeId())
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (n *Node) ValidateVolumeCapabilities(
	ctx context.Context, q *pb.ValidateVolumeCapabilitiesRequest,
) (*pb.ValidateVolumeCapabilitiesResponse, error) {
	return &pb.ValidateVolumeCapabilitiesResponse{}, n.called(ctx, "validate "+q.GetVolumeId())
}

// Shows is what a node says of the shared pool local.
func (n *Node) Shows(id string, room int64, waiting bool, rooms ...string) *Node {
	state := "absent"
	if id != "" {
		state = "present"
	}
	n.Show(nodeapi.PoolStatus{
		Name: "local", ID: id, State: state, Growable: room, Allocatable: room, Waiting: waiting, NodeDirs: rooms,
	})
	return n
}

// ToldOfLocal is what a node was told of the pool local last.
func (n *Node) ToldOfLocal() *wire.SharedPool {
	if told := n.Told(); len(told) > 0 {
		return told[0]
	}
	return &wire.SharedPool{}
}
