package wire

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/metadata"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// volumeKey is the metadata of a call about a volume with what Kubernetes says of that, in JSON.
const volumeKey = "hpp-pv-bin"

type facts struct {
	Named bool                     `json:"named"`
	PV    nodeapi.PersistentVolume `json:"pv"`
}

// WithVolume attaches to a call what PersistentVolume names the volume that it is about, or that none does: then pv has
// nothing but the Handle. One that does must be on the node that is called, and on no other.
func WithVolume(ctx context.Context, pv nodeapi.PersistentVolume, named bool) context.Context {
	pv.Here = named
	data, err := json.Marshal(facts{named, pv})
	if err != nil { // there is nothing in it that could fail
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, volumeKey, string(data))
}

// VolumeOf gives what the caller has attached to a call about a volume; known is false where that is nothing, or what
// no PersistentVolume says.
func VolumeOf(ctx context.Context, id string) (pv nodeapi.PersistentVolume, named, known bool) {
	var said facts
	data := metadata.ValueFromIncomingContext(ctx, volumeKey)
	if len(data) != 1 || json.Unmarshal([]byte(data[0]), &said) != nil || said.PV.Handle != id || said.PV.Bytes < 0 ||
		(said.PV.OnDelete != "" && !nodeapi.IsOnDelete(said.PV.OnDelete)) {
		return pv, false, false
	}
	return said.PV, said.Named, true
}

// sourceKey is the metadata of a CreateVolume on another node than that of its source, with what is known of that.
const sourceKey = "hpp-source-bin"

// Source is what a new volume is copied from on another node.
type Source struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"` // the least that the volume must have
	// Move is set where the source is the volume itself, which is moved: which move it is.
	Move string `json:"move,omitempty"`
}

// maxMove bounds the name of a move, in bytes.
const maxMove = 128

// WithSource attaches to a CreateVolume that its source is on another node, from which the controller fills it.
func WithSource(ctx context.Context, s Source) context.Context {
	data, err := json.Marshal(s)
	if err != nil { // there is nothing in it that could fail
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, sourceKey, string(data))
}

// SourceOf gives a source on another node, the zero one where the caller does not say that it is on one.
func SourceOf(ctx context.Context, id string) (s Source) {
	data := metadata.ValueFromIncomingContext(ctx, sourceKey)
	if len(data) != 1 || json.Unmarshal([]byte(data[0]), &s) != nil || s.ID != id || s.Bytes < 0 ||
		len(s.Move) > maxMove || s.Move != "" && s.Bytes == 0 {
		return Source{}
	}
	return s
}
