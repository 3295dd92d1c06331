package csi_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const target = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"

func TestIdentity(t *testing.T) {
	c := serve(t, &fake{})
	info, err := c.GetPluginInfo(t.Context(), &pb.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "kubevirt.io.hostpath-provisioner" || info.GetVendorVersion() != "0.1.0" {
		t.Errorf("GetPluginInfo: %v, %v", info, err)
	}
	capabilities, err := c.GetPluginCapabilities(t.Context(), &pb.GetPluginCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, capability := range capabilities.GetCapabilities() {
		if expansion := capability.GetVolumeExpansion(); expansion != nil {
			got = append(got, "expansion "+expansion.GetType().String())
			continue
		}
		got = append(got, capability.GetService().GetType().String())
	}
	if diff := cmp.Diff([]string{"CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS", "expansion ONLINE"},
		got); diff != "" {
		t.Error(diff)
	}
	if probe, err := c.Probe(t.Context(), &pb.ProbeRequest{}); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("Probe: %v, %v", probe, err)
	}
}

func TestCapabilities(t *testing.T) {
	c := serve(t, &fake{})
	var got []string
	controller, err := c.ControllerGetCapabilities(t.Context(), &pb.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, capability := range controller.GetCapabilities() {
		got = append(got, "controller "+capability.GetRpc().GetType().String())
	}
	node, err := c.NodeGetCapabilities(t.Context(), &pb.NodeGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, capability := range node.GetCapabilities() {
		got = append(got, "node "+capability.GetRpc().GetType().String())
	}
	if diff := cmp.Diff([]string{
		"controller CREATE_DELETE_VOLUME", "controller CREATE_DELETE_SNAPSHOT", "controller CLONE_VOLUME",
		"controller LIST_SNAPSHOTS", "controller LIST_VOLUMES", "controller GET_CAPACITY",
		"controller EXPAND_VOLUME", "controller GET_VOLUME",
		"controller SINGLE_NODE_MULTI_WRITER",
		"node GET_VOLUME_STATS", "node EXPAND_VOLUME", "node SINGLE_NODE_MULTI_WRITER", "node GET_VOLUME_HEALTH",
		"node GET_STORAGE_HEALTH",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNodeGetInfo(t *testing.T) {
	c := serve(t, &fake{})
	got, err := c.NodeGetInfo(t.Context(), &pb.NodeGetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&pb.NodeGetInfoResponse{NodeId: nodeName, AccessibleTopology: here()[0]}, got,
		protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestPublish(t *testing.T) {
	var asked volume.PublishRequest
	c := serve(t, &fake{publish: func(q volume.PublishRequest) error { asked = q; return nil }})
	kubevirts := map[string]string{
		"storagePool": "hpp", "storage.kubernetes.io/csiProvisionerIdentity": "x",
		"overlay": "y",
	}
	for name, test := range map[string]struct {
		asked *pb.NodePublishVolumeRequest
		want  volume.PublishRequest
	}{
		"writer": {
			&pb.NodePublishVolumeRequest{VolumeCapability: writer()[0], VolumeContext: kubevirts},
			volume.PublishRequest{Pool: "hpp"},
		},
		"read-only": {
			&pb.NodePublishVolumeRequest{VolumeCapability: writer()[0], Readonly: true},
			volume.PublishRequest{Options: bindmount.Options{ReadOnly: true}},
		},
		"reader": {
			&pb.NodePublishVolumeRequest{
				VolumeCapability: mountCapability(pb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY),
			},
			volume.PublishRequest{Options: bindmount.Options{ReadOnly: true}},
		},
		"single writer with options": {
			&pb.NodePublishVolumeRequest{
				VolumeCapability: mountCapability(pb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
					"nosuid", "nodev,noexec", "relatime"),
			},
			volume.PublishRequest{SingleWriter: true, Options: bindmount.Options{
				NoSUID: true, NoDev: true, NoExec: true,
				Atime: "relatime",
			}},
		},
		"a kubevirt volume of many writers": {
			&pb.NodePublishVolumeRequest{
				VolumeCapability: mountCapability(pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER),
			},
			volume.PublishRequest{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.asked.VolumeId, test.asked.TargetPath = "pvc-1", target
			test.want.ID, test.want.Target = "pvc-1", target
			if _, err := c.NodePublishVolume(t.Context(), test.asked); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPublishRefuses(t *testing.T) {
	c := serve(t, &fake{resolve: onePool}) // nothing is ever published
	for name, test := range map[string]struct {
		change func(*pb.NodePublishVolumeRequest)
		says   []string
	}{
		"no id": {func(q *pb.NodePublishVolumeRequest) { q.VolumeId = "" }, []string{"volume_id: missing"}},
		"id with dots": {
			func(q *pb.NodePublishVolumeRequest) { q.VolumeId = "../../etc" },
			[]string{"volume_id", `"../../etc"`},
		},
		"id with NUL": {func(q *pb.NodePublishVolumeRequest) { q.VolumeId = "a\x00" }, []string{"volume_id"}},
		"id of 300": {
			func(q *pb.NodePublishVolumeRequest) { q.VolumeId = strings.Repeat("a", 300) },
			[]string{"volume_id"},
		},
		"no target": {func(q *pb.NodePublishVolumeRequest) { q.TargetPath = "" }, []string{"target_path: missing"}},
		"relative": {
			func(q *pb.NodePublishVolumeRequest) { q.TargetPath = "pods/1" },
			[]string{"target_path", "absolute"},
		},
		"outside": {
			func(q *pb.NodePublishVolumeRequest) { q.TargetPath = "/etc" },
			[]string{"target_path", "/var/lib/kubelet"},
		},
		"beside": {
			func(q *pb.NodePublishVolumeRequest) { q.TargetPath = "/var/lib/kubelet2/x" },
			[]string{"target_path"},
		},
		"out again": {
			func(q *pb.NodePublishVolumeRequest) { q.TargetPath = "/var/lib/kubelet/../../etc" },
			[]string{"target_path", ".."},
		},
		"target NUL": {
			func(q *pb.NodePublishVolumeRequest) { q.TargetPath = "/var/lib/kubelet/a\x00" },
			[]string{"target_path"},
		},
		"no capability": {
			func(q *pb.NodePublishVolumeRequest) { q.VolumeCapability = nil },
			[]string{"volume_capability: missing"},
		},
		"block": {
			func(q *pb.NodePublishVolumeRequest) { q.VolumeCapability = blockCapability() },
			[]string{"volume_capability.block"},
		},
		"option": {func(q *pb.NodePublishVolumeRequest) {
			q.VolumeCapability = mountCapability(pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "suid")
		}, []string{"volume_capability.mount.mount_flags", `"suid"`}},
	} {
		t.Run(name, func(t *testing.T) {
			q := &pb.NodePublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target, VolumeCapability: writer()[0]}
			test.change(q)
			_, err := c.NodePublishVolume(t.Context(), q)
			refused(t, err, codes.InvalidArgument, test.says...)
		})
	}
}

func inlineContext(extra map[string]string) map[string]string {
	attributes := map[string]string{
		"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "web-0",
		"csi.storage.k8s.io/pod.namespace": "shop",
		"csi.storage.k8s.io/pod.uid":       "77", "csi.storage.k8s.io/serviceAccount.tokens": "secret",
	}
	maps.Copy(attributes, extra)
	return attributes
}

func TestPublishInline(t *testing.T) {
	var asked volume.PublishRequest
	c := serve(t, &fake{
		resolve: onePool, spec: configured(poolspec.Pool{Inline: true}),
		publish: func(q volume.PublishRequest) error { asked = q; return nil },
	})
	_, err := c.NodePublishVolume(t.Context(), &pb.NodePublishVolumeRequest{
		VolumeId: "csi-0a", TargetPath: target, VolumeCapability: writer()[0],
		VolumeContext: inlineContext(map[string]string{"size": "2Gi", "inodeLimit": "100"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := volume.PublishRequest{ID: "csi-0a", Target: target, Inline: &volume.Spec{
		ID: "csi-0a", Pool: "local", Bytes: 2 << 30, Inodes: 100, Mode: 0o777, OnDelete: store.Purge, Ephemeral: true,
		Claim:      nodeapi.Claim{Namespace: "shop", Name: "web-0", UID: "77"},
		Parameters: map[string]string{"size": "2Gi", "inodeLimit": "100"},
	}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	_, err = c.NodePublishVolume(t.Context(), &pb.NodePublishVolumeRequest{
		VolumeId: "csi-0a", TargetPath: target, VolumeCapability: writer()[0], VolumeContext: inlineContext(nil),
	})
	if err != nil || asked.Inline.Inodes != 0 || asked.Inline.InodesFrom != store.Derived {
		t.Errorf("without an inodeLimit: %+v, %v", asked.Inline, err)
	}
}

func TestPublishInlineRefuses(t *testing.T) {
	c := serve(t, &fake{resolve: onePool, spec: configured(poolspec.Pool{})})
	for name, test := range map[string]struct {
		attributes map[string]string
		says       []string
	}{
		"pool without inline": {nil, []string{"volume_context.storagePool", `"local"`, "inline: true"}},
		"unknown pool": {
			map[string]string{"storagePool": "fast"},
			[]string{"volume_context.storagePool", `"fast"`},
		},
		"unknown key": {map[string]string{"sise": "1Gi"}, []string{
			`volume_context: unknown key "sise"`,
			`known are inodeLimit, size, storagePool`,
		}},
		"class key":     {map[string]string{"uid": "5"}, []string{`unknown key "uid"`}},
		"size":          {map[string]string{"size": "big"}, []string{"volume_context.size", `"big"`}},
		"size 0":        {map[string]string{"size": "0"}, []string{"volume_context.size", "more than 0"}},
		"size of hours": {map[string]string{"size": "1e-99999999"}, []string{"volume_context.size"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.NodePublishVolume(t.Context(), &pb.NodePublishVolumeRequest{
				VolumeId: "csi-0a", TargetPath: target, VolumeCapability: writer()[0],
				VolumeContext: inlineContext(test.attributes),
			})
			refused(t, err, codes.InvalidArgument, test.says...)
		})
	}
}

func TestUnpublish(t *testing.T) {
	c := serve(t, &fake{unpublish: func(id, at string) error {
		if id != "pvc-1" || at != target {
			t.Errorf("asked for %s at %s", id, at)
		}
		return nil
	}})
	ask := func(id, at string) error {
		_, err := c.NodeUnpublishVolume(t.Context(), &pb.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: at})
		return err
	}
	refused(t, ask("pvc-1", target), codes.OK)
	refused(t, ask("", target), codes.InvalidArgument, "volume_id")
	refused(t, ask("a/b", target), codes.InvalidArgument, "volume_id")
	refused(t, ask("pvc-1", ""), codes.InvalidArgument, "target_path")
	refused(t, ask("pvc-1", "/"), codes.InvalidArgument, "target_path")
}

func TestStats(t *testing.T) {
	c := serve(t, &fake{stats: func(id, path string) (volume.Stats, error) {
		switch id {
		case "pvc-1":
			return volume.Stats{
				Bytes: 10, BytesUsed: 4, BytesAvailable: 6, Inodes: 5, InodesUsed: 2,
				InodesAvailable: 3,
			}, nil
		case "pvc-2":
			return volume.Stats{Bytes: 10, BytesUsed: 4, BytesAvailable: 6}, nil
		}
		return volume.Stats{}, fmt.Errorf("%w at %s", store.ErrNotFound, path)
	}})
	bytes := &pb.VolumeUsage{Unit: pb.VolumeUsage_BYTES, Total: 10, Used: 4, Available: 6}
	inodes := &pb.VolumeUsage{Unit: pb.VolumeUsage_INODES, Total: 5, Used: 2, Available: 3}
	for id, want := range map[string][]*pb.VolumeUsage{"pvc-1": {bytes, inodes}, "pvc-2": {bytes}} {
		got, err := c.NodeGetVolumeStats(t.Context(), &pb.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: target})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.GetUsage(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
	for _, test := range []struct {
		id, path string
		code     codes.Code
		says     string
	}{
		{"", target, codes.InvalidArgument, "volume_id"},
		{"pvc-1", "", codes.InvalidArgument, "volume_path"},
		{"pvc-1", "some/path", codes.NotFound, "volume_path"},
		{"pvc-9", target, codes.NotFound, target},
	} {
		_, err := c.NodeGetVolumeStats(t.Context(), &pb.NodeGetVolumeStatsRequest{
			VolumeId:   test.id,
			VolumePath: test.path,
		})
		refused(t, err, test.code, test.says)
	}
}

func TestVolumeHealth(t *testing.T) {
	answers := map[string]struct {
		health volume.Health
		err    error
		want   string // status, reason
	}{
		"healthy":  {volume.Health{Condition: volume.Healthy, Reason: "Healthy"}, nil, ""},
		"degraded": {volume.Health{Condition: volume.Degraded, Reason: "Slow"}, nil, "DEGRADED Slow"},
		"gone":     {volume.Health{}, volume.ErrLost, "DATA_LOSS DataLost"},
		"away":     {volume.Health{}, fmt.Errorf("pool x: %w", pool.ErrAbsent), "INACCESSIBLE PoolAbsent"},
		"broken":   {volume.Health{}, store.ErrBroken, "INACCESSIBLE RecordUnusable"},
	}
	c := serve(t, &fake{get: func(id string) (volume.Volume, volume.Health, error) {
		if answer, ok := answers[id]; ok {
			return volume.Volume{}, answer.health, answer.err
		}
		return volume.Volume{}, volume.Health{}, store.ErrNotFound
	}})
	for id, test := range answers {
		got, err := c.NodeGetVolumeHealth(t.Context(), &pb.NodeGetVolumeHealthRequest{VolumeId: id})
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		var entries []string
		for _, e := range got.GetVolumeHealth().GetHealthStatuses() {
			entries = append(entries, e.GetStatus().String()+" "+e.GetReason())
		}
		if strings.Join(entries, ",") != test.want || got.GetVolumeHealth().GetVolumeId() != id {
			t.Errorf("%s: got %v, want %q", id, got, test.want)
		}
	}
	_, err := c.NodeGetVolumeHealth(t.Context(), &pb.NodeGetVolumeHealthRequest{VolumeId: "other"})
	refused(t, err, codes.NotFound)
	_, err = c.NodeGetVolumeHealth(t.Context(), &pb.NodeGetVolumeHealthRequest{})
	refused(t, err, codes.InvalidArgument, "volume_id")
}

func TestStorageHealth(t *testing.T) {
	absent := nodeapi.PoolStatus{
		Name: "b", Used: true, State: nodeapi.StateAbsent, Reason: "MarkerMissing", Message: "not mounted",
	}
	other := absent
	other.Name, other.Used, other.Selected = "d", false, true
	c := serve(t, &fake{status: func() []nodeapi.PoolStatus {
		return []nodeapi.PoolStatus{
			absent,
			{Name: "a", Selected: true, State: nodeapi.StatePresent},
			{Name: "c", Selected: true, State: nodeapi.StatePresent, Reason: "ReadOnly", Message: "read-only"},
			other,
			{Name: "e", State: nodeapi.StateNotSelected, Reason: "NotSelected", Message: "labels"},
		}
	}})
	got, err := c.NodeGetStorageHealth(t.Context(), &pb.NodeGetStorageHealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.NodeGetStorageHealthResponse{BackendHealth: []*pb.NodeGetStorageHealthResponse_StorageBackendHealth{
		{
			Status: pb.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "MarkerMissing",
			Message: "pool b: not mounted; pool d: not mounted",
		},
		{Status: pb.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "ReadOnly", Message: "pool c: read-only"},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
