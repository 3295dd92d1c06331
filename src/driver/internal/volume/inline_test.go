package volume_test

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestInlineVolumesOfAnotherDriver: the pod that was using one when this driver took over ends, or starts again after a
// boot; and only what the kubelet has noted counts.
func TestInlineVolumesOfAnotherDriver(t *testing.T) {
	publishInline := func(n *node) error {
		s := spec("csi-1")
		s.Ephemeral, s.Pool = true, "local"
		return n.Publish(t.Context(), volume.PublishRequest{ID: "csi-1", Target: target, Inline: &s})
	}
	for name, test := range map[string]struct {
		noted, publish, gone bool
	}{
		"its pod ends":                   {noted: true, gone: true},
		"its pod starts again, and ends": {noted: true, publish: true, gone: true},
		"nobody says that it is inline":  {},
	} {
		t.Run(name, func(t *testing.T) {
			n := withForeign(t, "csi-1")
			if s := n.status(); s.Untracked != 1 {
				t.Errorf("%d untracked directories, want 1", s.Untracked)
			}
			if test.noted {
				n.mounts.inline[target] = "csi-1"
			} else {
				wants(t, publishInline(n), volume.ErrExists, "did not make")
			}
			if test.publish {
				must(t, publishInline(n), publishInline(n))
				n.kept(t, "csi-1", "published")
			}
			must(t, n.Unpublish(t.Context(), "csi-1", target), n.Unpublish(t.Context(), "csi-1", target))
			if !test.gone {
				n.kept(t, "csi-1", "not noted")
				return
			}
			if _, places := n.find(t, "csi-1"); len(places) != 1 || !strings.HasPrefix(places[0], disk.TrashDir) {
				t.Errorf("data is at %v", places)
			}
			if s := n.status(); s.Untracked != 0 || s.Volumes != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
