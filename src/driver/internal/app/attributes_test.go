package app_test

import (
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// large is more than a record may have.
func large(of string) string { return strings.Repeat(of, 1_100_000) }

// TestLargeAttributesOfAnInlineVolume: the API server does not bound them. Whatever a pod's author writes, the volume
// is either not made at all, or goes with its pod.
func TestLargeAttributesOfAnInlineVolume(t *testing.T) {
	m := newMachine(t, onePool)
	controller, node := m.start(t)
	create(t, controller, "pvc-0") // makes what the driver keeps beside volumes
	before := everythingIn(t, m.path("pool/csi"))
	for name, test := range map[string]struct {
		key, value string
		want       codes.Code
	}{
		"a number of zeros":   {"inodeLimit", large("0"), codes.InvalidArgument},
		"a size of zeros":     {"size", large("0") + "1Mi", codes.InvalidArgument},
		"a pool":              {"storagePool", large("x"), codes.InvalidArgument},
		"one byte too many":   {"inodeLimit", strings.Repeat("0", 1025), codes.InvalidArgument},
		"as many as may be":   {"inodeLimit", strings.Repeat("0", 1024), codes.OK},
		"nul bytes":           {"inodeLimit", "1\x00", codes.InvalidArgument},
		"a large unknown key": {large("k"), "", codes.InvalidArgument},
		"the pod's name":      {"csi.storage.k8s.io/pod.name", large("x"), codes.InvalidArgument},
		"the pod's name, escaped": {
			"csi.storage.k8s.io/pod.name", strings.Repeat("\x00", 1<<18),
			codes.InvalidArgument,
		},
		"the pod's namespace":      {"csi.storage.k8s.io/pod.namespace", large("x"), codes.InvalidArgument},
		"the pod's uid":            {"csi.storage.k8s.io/pod.uid", large("x"), codes.InvalidArgument},
		"tokens, which nobody has": {"csi.storage.k8s.io/serviceAccount.tokens", large("x"), codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			request := publishing(m, "csi-0a")
			request.VolumeContext = map[string]string{"csi.storage.k8s.io/ephemeral": "true", test.key: test.value}
			if _, err := node.NodePublishVolume(t.Context(), request); status.Code(err) != test.want {
				t.Errorf("publish: %v, want %v", err, test.want)
			}
			if _, err := node.NodeUnpublishVolume(t.Context(), &pb.NodeUnpublishVolumeRequest{
				VolumeId: "csi-0a", TargetPath: m.target("a"),
			}); err != nil {
				t.Errorf("unpublish: %v", err)
			}
		})
	}
	waittest.Until(t, "the pool is as it was before", func() bool {
		return cmp.Equal(before, everythingIn(t, m.path("pool/csi")))
	})
}

// TestLargeAttributes of a class and of a PersistentVolume: none is made that could not be deleted, and one that is
// there is published whatever its PersistentVolume says.
func TestLargeAttributes(t *testing.T) {
	m := newMachine(t, onePool)
	controller, node := m.start(t)
	create(t, controller, "pvc-0")
	before := everythingIn(t, m.path("pool/csi"))
	for _, key := range []string{
		"storagePool", "directoryMode", "uid", "gid", "inodeLimit", "onDelete", "overlayCSI",
		"csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/pv/name",
		"csi.storage.k8s.io/x",
	} {
		_, err := controller.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: "pvc-1", CapacityRange: &pb.CapacityRange{RequiredBytes: 1 << 20},
			VolumeCapabilities: []*pb.VolumeCapability{writer()}, Parameters: map[string]string{key: large("0")},
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "pvc-1") &&
			!strings.Contains(err.Error(), "parameters."+key+": 1100000 bytes") {
			t.Errorf("%s: %v", key, err)
		}
	}
	if diff := cmp.Diff(before, everythingIn(t, m.path("pool/csi"))); diff != "" {
		t.Errorf("the pool before (-) and after (+):\n%s", diff)
	}
	request := publishing(m, "pvc-0")
	request.VolumeContext = map[string]string{"inodeLimit": large("0"), "nobody knows it": large("\x00")}
	if _, err := node.NodePublishVolume(t.Context(), request); err != nil {
		t.Errorf("publish of a persistent volume: %v", err)
	}
}
