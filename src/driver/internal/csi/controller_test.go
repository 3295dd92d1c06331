package csi_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// refused checks an error's code and that its message says every part.
func refused(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			t.Errorf("message %q does not say %q", status.Convert(err).Message(), part)
		}
	}
}

func here() []*pb.Topology {
	return []*pb.Topology{{Segments: map[string]string{topologyKey: nodeName}}}
}

func TestCreateVolume(t *testing.T) {
	var asked volume.Spec
	c := serve(t, &fake{resolve: onePool, create: func(s volume.Spec) (volume.Volume, error) {
		asked = s
		return volume.Volume{
			Record:      store.Record{ID: s.ID, Pool: s.Pool, Bytes: s.Bytes, Parameters: s.Parameters},
			Enforcement: quota.None,
		}, nil
	}})
	parameters := map[string]string{
		"directoryMode": "2750", "uid": "1000", "gid": "2000", "inodeLimit": "5000", "onDelete": "retain",
		"overlayCSI":                  "true",
		"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop",
		"csi.storage.k8s.io/pv/name": "pvc-1b4f",
	}
	got, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: "pvc-1b4f", CapacityRange: &pb.CapacityRange{RequiredBytes: 3 << 30, LimitBytes: 4 << 30},
		VolumeCapabilities: writer(),
		Parameters:         parameters, Secrets: map[string]string{"password": "hush"},
		AccessibilityRequirements: &pb.TopologyRequirement{Requisite: here(), Preferred: here()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(volume.Spec{
		ID: "pvc-1b4f", Pool: "local", Bytes: 3 << 30, MaxBytes: 4 << 30, Inodes: 5000, Mode: 0o750 | fs.ModeSetgid,
		UID: 1000, GID: 2000,
		OnDelete: store.Retain, Claim: nodeapi.Claim{Namespace: "shop", Name: "data", UID: "1b4f"},
		Parameters: parameters,
	}, asked); diff != "" {
		t.Errorf("asked of the domain: %s", diff)
	}
	attributes := map[string]string{"storagePool": "local", "enforcement": "none"}
	maps.Copy(attributes, parameters)
	if diff := cmp.Diff(&pb.CreateVolumeResponse{Volume: &pb.Volume{
		VolumeId: "pvc-1b4f", CapacityBytes: 3 << 30, VolumeContext: attributes, AccessibleTopology: here(),
	}}, got, protocmp.Transform()); diff != "" {
		t.Errorf("answered: %s", diff)
	}
}

// TestInodeLimit: a class that names none leaves it to the size, "0" is none.
func TestInodeLimit(t *testing.T) {
	var asked volume.Spec
	c := serve(t, &fake{resolve: onePool, create: func(s volume.Spec) (volume.Volume, error) {
		asked = s
		return volume.Volume{}, nil
	}})
	for value, want := range map[string]volume.Spec{
		"": {InodesFrom: store.Derived}, "0": {InodesFrom: store.FromClass}, "00": {InodesFrom: store.FromClass},
		"70": {Inodes: 70, InodesFrom: store.FromClass},
	} {
		parameters := map[string]string{"inodeLimit": value}
		if value == "" {
			parameters = nil
		}
		_, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: "pvc-1", VolumeCapabilities: writer(), Parameters: parameters,
		})
		if err != nil || asked.Inodes != want.Inodes || asked.InodesFrom != want.InodesFrom {
			t.Errorf("%q: %d %q, %v", value, asked.Inodes, asked.InodesFrom, err)
		}
	}
}

func TestCreateVolumeSizes(t *testing.T) {
	var asked volume.Spec
	c := serve(t, &fake{resolve: onePool, create: func(s volume.Spec) (volume.Volume,
		error,
	) {
		asked = s
		return volume.Volume{}, nil
	}})
	for name, test := range map[string]struct {
		asked        *pb.CapacityRange
		bytes, limit int64
	}{
		"no range":        {nil, 1 << 30, 0},
		"required":        {&pb.CapacityRange{RequiredBytes: 5}, 5, 0},
		"small limit":     {&pb.CapacityRange{LimitBytes: 7 << 20}, 7 << 20, 7 << 20},
		"large limit":     {&pb.CapacityRange{LimitBytes: 7 << 40}, 1 << 30, 7 << 40},
		"required, limit": {&pb.CapacityRange{RequiredBytes: 5, LimitBytes: 5}, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
				Name: "v", CapacityRange: test.asked,
				VolumeCapabilities: writer(),
			}); err != nil {
				t.Fatal(err)
			}
			if asked.Bytes != test.bytes || asked.MaxBytes != test.limit {
				t.Errorf("asked for %d, at most %d; want %d, at most %d", asked.Bytes, asked.MaxBytes, test.bytes,
					test.limit)
			}
		})
	}
}

func TestCreateVolumeRefuses(t *testing.T) {
	c := serve(t, &fake{resolve: onePool, spec: configured(poolspec.Pool{})}) // nothing is ever made
	with := func(key, value string) func(*pb.CreateVolumeRequest) {
		return func(q *pb.CreateVolumeRequest) { q.Parameters = map[string]string{key: value} }
	}
	named := func(name string) func(*pb.CreateVolumeRequest) {
		return func(q *pb.CreateVolumeRequest) { q.Name = name }
	}
	sized := func(required, limit int64) func(*pb.CreateVolumeRequest) {
		return func(q *pb.CreateVolumeRequest) {
			q.CapacityRange = &pb.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		}
	}
	able := func(capabilities ...*pb.VolumeCapability) func(*pb.CreateVolumeRequest) {
		return func(q *pb.CreateVolumeRequest) { q.VolumeCapabilities = capabilities }
	}
	mode := func(m pb.VolumeCapability_AccessMode_Mode, flags ...string) func(*pb.CreateVolumeRequest) {
		return able(mountCapability(m, flags...))
	}
	for name, test := range map[string]struct {
		change func(*pb.CreateVolumeRequest)
		code   codes.Code
		says   []string
	}{
		"no name":         {named(""), codes.InvalidArgument, []string{"name: missing"}},
		"name with slash": {named("a/b"), codes.InvalidArgument, []string{"name", `"a/b"`}},
		"name with dots":  {named(".."), codes.InvalidArgument, []string{"name", `".."`}},
		"name with NUL":   {named("a\x00b"), codes.InvalidArgument, []string{"name", `"a\x00b"`}},
		"name too long":   {named(strings.Repeat("a", 300)), codes.InvalidArgument, []string{"name", "1 to 128"}},
		"misspelt key": {
			with("storagepool", "local"), codes.InvalidArgument,
			[]string{`parameters: unknown key "storagepool"`, "known are ", "onDelete", "storagePool"},
		},
		"unknown key": {
			with("replication", "3"), codes.InvalidArgument,
			[]string{`unknown key "replication"`, "known are", "inodeLimit"},
		},
		"inline-only key": {with("size", "1Gi"), codes.InvalidArgument, []string{`unknown key "size"`}},
		"unknown pool": {
			with("storagePool", "fast"), codes.InvalidArgument,
			[]string{"parameters.storagePool", `"fast"`},
		},
		"mode not octal": {
			with("directoryMode", "0o888"), codes.InvalidArgument,
			[]string{"parameters.directoryMode", "octal"},
		},
		"mode setuid": {
			with("directoryMode", "4777"), codes.InvalidArgument,
			[]string{"parameters.directoryMode", "3777"},
		},
		"uid negative":    {with("uid", "-1"), codes.InvalidArgument, []string{"parameters.uid", "whole number"}},
		"uid no change":   {with("uid", "4294967295"), codes.InvalidArgument, []string{"parameters.uid", "4294967294"}},
		"gid a name":      {with("gid", "users"), codes.InvalidArgument, []string{"parameters.gid"}},
		"inodes negative": {with("inodeLimit", "-5"), codes.InvalidArgument, []string{"parameters.inodeLimit"}},
		"onDelete": {
			with("onDelete", "keep"), codes.InvalidArgument,
			[]string{"parameters.onDelete", "trash, purge or retain"},
		},
		"onDelete empty": {with("onDelete", ""), codes.InvalidArgument, []string{"parameters.onDelete"}},
		"size 0":         {sized(0, 0), codes.InvalidArgument, []string{"capacity_range.required_bytes: 0"}},
		"size negative":  {sized(-1, 0), codes.InvalidArgument, []string{"capacity_range.required_bytes: -1"}},
		"limit negative": {sized(1, -1), codes.InvalidArgument, []string{"capacity_range.limit_bytes: -1"}},
		"limit below size": {
			sized(10, 5), codes.InvalidArgument,
			[]string{"capacity_range.limit_bytes: 5", "required_bytes 10"},
		},
		"no capability": {able(), codes.InvalidArgument, []string{"volume_capabilities: missing"}},
		"capability null": {
			able(&pb.VolumeCapability{}), codes.InvalidArgument,
			[]string{"volume_capabilities[0].access_type"},
		},
		"block": {
			able(writer()[0], blockCapability()), codes.InvalidArgument,
			[]string{"volume_capabilities[1].block", "Filesystem"},
		},
		"no access mode": {
			mode(pb.VolumeCapability_AccessMode_UNKNOWN), codes.InvalidArgument,
			[]string{"access_mode: missing"},
		},
		"RWX": {
			mode(pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), codes.InvalidArgument,
			[]string{
				"volume_capabilities[0].access_mode: MULTI_NODE_MULTI_WRITER: a volume of pool local lives on one node",
				"ReadWriteOnce", "sharedAccess: true",
			},
		},
		"ROX": {
			mode(pb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY), codes.InvalidArgument,
			[]string{"MULTI_NODE_READER_ONLY"},
		},
		"mode from later": {mode(99), codes.InvalidArgument, []string{"access_mode: 99"}},
		"mount option": {
			mode(pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "nosuid", "quota"),
			codes.InvalidArgument,
			[]string{"volume_capabilities[0].mount.mount_flags", `"quota"`, "noexec"},
		},
		"two atimes": {
			mode(pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "noatime,strictatime"),
			codes.InvalidArgument,
			[]string{"noatime and strictatime"},
		},
		"source": {
			func(q *pb.CreateVolumeRequest) { q.VolumeContentSource = &pb.VolumeContentSource{} },
			codes.InvalidArgument,
			[]string{"volume_content_source"},
		},
		"mutable parameters": {
			func(q *pb.CreateVolumeRequest) { q.MutableParameters = map[string]string{"iops": "5"} },
			codes.InvalidArgument,
			[]string{"mutable_parameters", "iops"},
		},
		"another node's":      {elsewhere, codes.ResourceExhausted, []string{"accessibility_requirements", nodeName}},
		"preferred elsewhere": {preferElsewhere, codes.ResourceExhausted, []string{"accessibility_requirements"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := &pb.CreateVolumeRequest{
				Name: "pvc-1", CapacityRange: &pb.CapacityRange{RequiredBytes: 1},
				VolumeCapabilities: writer(),
			}
			test.change(q)
			_, err := c.CreateVolume(t.Context(), q)
			refused(t, err, test.code, test.says...)
		})
	}
}

func otherNode() []*pb.Topology {
	return []*pb.Topology{{Segments: map[string]string{topologyKey: "worker-2"}}}
}

func elsewhere(q *pb.CreateVolumeRequest) {
	q.AccessibilityRequirements = &pb.TopologyRequirement{Requisite: otherNode(), Preferred: here()}
}

func preferElsewhere(q *pb.CreateVolumeRequest) {
	q.AccessibilityRequirements = &pb.TopologyRequirement{Preferred: otherNode()}
}

func TestCreateVolumeMapsTheDomainsError(t *testing.T) {
	c := serve(t, &fake{resolve: onePool, create: func(volume.Spec) (volume.Volume, error) {
		return volume.Volume{}, fmt.Errorf("%w: 5 bytes free", ledger.ErrNoSpace)
	}})
	_, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "v", VolumeCapabilities: writer()})
	refused(t, err, codes.ResourceExhausted, "5 bytes free")
}

func TestCreateVolumeTakesEverySingleNodeMode(t *testing.T) {
	c := serve(t, &fake{resolve: onePool, create: func(volume.Spec) (volume.Volume, error) {
		return volume.Volume{}, nil
	}})
	for _, mode := range []pb.VolumeCapability_AccessMode_Mode{
		pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, pb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		pb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		pb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	} {
		if _, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: "v", VolumeCapabilities: []*pb.VolumeCapability{mountCapability(mode, "ro",
				"nosuid,nodev,noexec,noatime")},
		}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestDeleteVolume(t *testing.T) {
	answer := error(nil)
	c := serve(t, &fake{remove: func(string) error { return answer }})
	for _, test := range []struct {
		id     string
		answer error
		code   codes.Code
		says   string
	}{
		{"pvc-1", nil, codes.OK, ""},
		{"pvc-1", fmt.Errorf("%w: pvc-1", store.ErrNotFound), codes.OK, ""},
		{"pvc-1", fmt.Errorf("%w: at /a", volume.ErrPublished), codes.FailedPrecondition, "at /a"},
		{"pvc-1", fmt.Errorf("%w: pool local", pool.ErrAbsent), codes.Unavailable, "pool local"},
		{"", nil, codes.InvalidArgument, "volume_id: missing"},
		{"../etc", nil, codes.InvalidArgument, "volume_id"},
		{"a/b", nil, codes.InvalidArgument, "volume_id"},
		{"a\x00", nil, codes.InvalidArgument, "volume_id"},
		{strings.Repeat("a", 300), nil, codes.InvalidArgument, "volume_id"},
	} {
		answer = test.answer
		_, err := c.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: test.id})
		refused(t, err, test.code, test.says)
	}
}

// TestWhatTheControllerSaysOfAVolume reaches the domain, if it is about the volume that the call is about.
func TestWhatTheControllerSaysOfAVolume(t *testing.T) {
	f := &fake{
		remove: func(string) error { return nil },
		expand: func(string, int64, int64) (volume.Volume, error) { return volume.Volume{}, nil },
	}
	c := serve(t, f)
	pv := nodeapi.PersistentVolume{
		Name: "pv", Handle: "pvc-1", Pool: "local", Nodes: []string{"n"}, Bytes: 7, Here: true,
	}
	for name, test := range map[string]struct {
		ctx  context.Context
		want *volume.Said
	}{
		"nothing":        {t.Context(), nil},
		"one names it":   {wire.WithVolume(t.Context(), pv, true), &volume.Said{PV: pv, Named: true}},
		"another volume": {wire.WithVolume(t.Context(), nodeapi.PersistentVolume{Handle: "pvc-2"}, true), nil},
		"none names it": {
			wire.WithVolume(t.Context(), nodeapi.PersistentVolume{Handle: "pvc-1"}, false),
			&volume.Said{PV: nodeapi.PersistentVolume{Handle: "pvc-1"}},
		},
	} {
		_, err := c.DeleteVolume(test.ctx, &pb.DeleteVolumeRequest{VolumeId: "pvc-1"})
		if err != nil || !reflect.DeepEqual(f.said, test.want) {
			t.Errorf("%s: delete: %v, %+v, want %+v", name, err, f.said, test.want)
		}
		_, err = c.ControllerExpandVolume(test.ctx, &pb.ControllerExpandVolumeRequest{
			VolumeId: "pvc-1", CapacityRange: &pb.CapacityRange{RequiredBytes: 1},
		})
		if err != nil || !reflect.DeepEqual(f.said, test.want) {
			t.Errorf("%s: expand: %v, %+v, want %+v", name, err, f.said, test.want)
		}
	}
}

func TestListVolumesPages(t *testing.T) {
	ids := []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4", "pvc-5"}
	c := serve(t, &fake{list: func(after string, limit int) (page []volume.Volume, next string, err error) {
		for _, id := range ids {
			if id > after && (limit == 0 || len(page) < limit) {
				page = append(page, volume.Volume{Record: store.Record{ID: id}})
			}
		}
		if last := page[len(page)-1].ID; last != ids[len(ids)-1] {
			next = last
		}
		return page, next, nil
	}})
	var got []string
	token := ""
	for range ids {
		page, err := c.ListVolumes(t.Context(), &pb.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.GetEntries() {
			got = append(got, entry.GetVolume().GetVolumeId())
		}
		if token = page.GetNextToken(); token == "" {
			break
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Error(diff)
	}
	_, err := c.ListVolumes(t.Context(), &pb.ListVolumesRequest{StartingToken: "invalid-token"})
	refused(t, err, codes.Aborted, "starting_token", "invalid-token")
	_, err = c.ListVolumes(t.Context(), &pb.ListVolumesRequest{MaxEntries: -1})
	refused(t, err, codes.InvalidArgument, "max_entries")
}

func TestGetCapacity(t *testing.T) {
	c := serve(t, &fake{resolve: onePool, capacity: func(string) (int64, int64) {
		return 10<<30 + 100<<20, 3<<30 + 70<<20
	}})
	full := &pb.GetCapacityResponse{AvailableCapacity: 10 << 30, MaximumVolumeSize: wrapperspb.Int64(3<<30 + 64<<20)}
	// said, for one that is not said does not bind the scheduler
	none := &pb.GetCapacityResponse{MaximumVolumeSize: wrapperspb.Int64(0)}
	for name, test := range map[string]struct {
		asked *pb.GetCapacityRequest
		want  *pb.GetCapacityResponse
	}{
		"nothing said": {&pb.GetCapacityRequest{}, full},
		"this node":    {&pb.GetCapacityRequest{AccessibleTopology: here()[0]}, full},
		"another node": {&pb.GetCapacityRequest{AccessibleTopology: otherNode()[0]}, none},
		"a pool":       {&pb.GetCapacityRequest{Parameters: map[string]string{"storagePool": "local"}}, full},
		"unknown pool": {&pb.GetCapacityRequest{Parameters: map[string]string{"storagePool": "fast"}}, none},
		"other parameters": {
			&pb.GetCapacityRequest{Parameters: map[string]string{"storagepool": "x", "uid": "-5"}},
			full,
		},
	} {
		got, err := c.GetCapacity(t.Context(), test.asked)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestGetCapacityOfAPoolThatTakesNoMore: its volumes may grow, and the scheduler must not choose the node.
func TestGetCapacityOfAPoolThatTakesNoMore(t *testing.T) {
	c := serve(t, &fake{resolve: onePool, capacity: func(string) (int64, int64) { return 10 << 30, 0 }})
	got, err := c.GetCapacity(t.Context(), &pb.GetCapacityRequest{})
	want := &pb.GetCapacityResponse{AvailableCapacity: 10 << 30, MaximumVolumeSize: wrapperspb.Int64(0)}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}

func TestValidateVolumeCapabilities(t *testing.T) {
	c := serve(t, &fake{get: func(id string) (volume.Volume, volume.Health, error) {
		if id != "pvc-1" {
			return volume.Volume{}, volume.Health{}, store.ErrNotFound
		}
		return volume.Volume{}, volume.Health{}, nil
	}})
	ask := func(id string, capabilities ...*pb.VolumeCapability) (*pb.ValidateVolumeCapabilitiesResponse, error) {
		return c.ValidateVolumeCapabilities(t.Context(), &pb.ValidateVolumeCapabilitiesRequest{
			VolumeId:           id,
			VolumeCapabilities: capabilities,
		})
	}
	_, err := ask("", writer()...)
	refused(t, err, codes.InvalidArgument, "volume_id")
	_, err = ask("pvc-1")
	refused(t, err, codes.InvalidArgument, "volume_capabilities")
	_, err = ask("pvc-2", writer()...)
	refused(t, err, codes.NotFound)
	if got, err := ask("pvc-1", writer()...); err != nil || got.GetConfirmed() == nil {
		t.Errorf("a writer: %v, %v; want it confirmed", got, err)
	}
	if got, err := ask("pvc-1", blockCapability()); err != nil || got.GetConfirmed() != nil ||
		!strings.Contains(got.GetMessage(), "block") {
		t.Errorf("block: %v, %v; want it not confirmed, with a message", got, err)
	}
}

func TestControllerGetVolume(t *testing.T) {
	c := serve(t, &fake{published: "pvc-1", get: func(id string) (volume.Volume, volume.Health, error) {
		if id != "pvc-1" {
			return volume.Volume{}, volume.Health{}, store.ErrNotFound
		}
		return volume.Volume{
				Record:      store.Record{ID: id, Pool: "local", Bytes: 5, Adopted: true},
				Enforcement: quota.None,
			},
			volume.Health{}, nil
	}})
	got, err := c.ControllerGetVolume(t.Context(), &pb.ControllerGetVolumeRequest{VolumeId: "pvc-1"})
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.ControllerGetVolumeResponse{
		Volume: &pb.Volume{
			VolumeId: "pvc-1", CapacityBytes: 5, VolumeContext: map[string]string{
				"storagePool": "local",
				"enforcement": "none",
			},
			AccessibleTopology: here(),
		},
		Status: &pb.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: []string{nodeName}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	_, err = c.ControllerGetVolume(t.Context(), &pb.ControllerGetVolumeRequest{VolumeId: "pvc-2"})
	refused(t, err, codes.NotFound)
	_, err = c.ControllerGetVolume(t.Context(), &pb.ControllerGetVolumeRequest{})
	refused(t, err, codes.InvalidArgument, "volume_id")
}
