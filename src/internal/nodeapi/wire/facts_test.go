package wire_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// arrived is the context of a call on the other side.
func arrived(sent context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(sent)
	return metadata.NewIncomingContext(sent, md)
}

// TestWhatKubernetesSaysOfAVolume travels with a call, every field of it.
func TestWhatKubernetesSaysOfAVolume(t *testing.T) {
	sent := fill[nodeapi.PersistentVolume](t)
	sent.Here, sent.OnDelete = false, nodeapi.OnDeleteRetain // it is here, to the node that is called
	read, named, known := wire.VolumeOf(arrived(wire.WithVolume(t.Context(), sent, true)), sent.Handle)
	sent.Here = true
	if diff := cmp.Diff(sent, read); diff != "" || !named || !known {
		t.Errorf("named %v, known %v (-sent +read):\n%s", named, known, diff)
	}
	none := wire.WithVolume(t.Context(), nodeapi.PersistentVolume{Handle: "pvc-1"}, false)
	if pv, named, known := wire.VolumeOf(arrived(none), "pvc-1"); named || !known || pv.Here {
		t.Errorf("no PersistentVolume names it: %+v, %v, %v", pv, named, known)
	}
	for name, ctx := range map[string]context.Context{
		"nothing":        t.Context(),
		"another volume": arrived(wire.WithVolume(t.Context(), nodeapi.PersistentVolume{Handle: "pvc-2"}, true)),
		"twice":          arrived(wire.WithVolume(none, sent, true)),
		"no JSON":        metadata.NewIncomingContext(t.Context(), metadata.Pairs("hpp-pv-bin", "pvc-1")),
		"no disposal": arrived(wire.WithVolume(t.Context(),
			nodeapi.PersistentVolume{Handle: "pvc-1", OnDelete: "shred"}, true)),
		"no size":   arrived(wire.WithVolume(t.Context(), nodeapi.PersistentVolume{Handle: "pvc-1", Bytes: -1}, true)),
		"no volume": metadata.NewIncomingContext(t.Context(), metadata.Pairs("hpp-pv-bin", "{}")),
	} {
		if pv, named, known := wire.VolumeOf(ctx, "pvc-1"); known || named || pv.Handle != "" {
			t.Errorf("%s: %+v, %v, %v", name, pv, named, known)
		}
	}
}
