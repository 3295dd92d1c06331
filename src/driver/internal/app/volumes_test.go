package app_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// says runs one of the driver's commands, and fails the test unless it says all parts and fails as expected.
func (m *machine) says(t *testing.T, fails bool, args []string, parts ...string) (out string) {
	t.Helper()
	out, err := m.run(t, append(args, "--state-dir="+m.path("state"))...)
	if exit, ok := errors.AsType[*exec.ExitError](err); fails != (ok && exit.ExitCode() == 1) {
		t.Errorf("%v: %v: %s", args, err, out)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("%v: %q is not in: %s", args, part, out)
		}
	}
	return out
}

func (m *machine) status(t *testing.T) nodeapi.Status {
	t.Helper()
	var s nodeapi.Status
	out := m.says(t, false, []string{"status", "-o", "json"})
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

func enforce(args ...string) []string { return append([]string{"volume", "enforce"}, args...) }

// TestEnforceCommand: a volume's data was copied by hand into a new subvolume, which counts to nothing, and another's
// into a plain directory.
func TestEnforceCommand(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: btrfs, path: $POOL.btrfs, quota: required}, {name: local, path: $POOL}]")
	mountDisk(t, m.path("pool.btrfs"), "btrfs")
	controller, node := m.start(t)
	volume := func(id, pool string) *pb.NodePublishVolumeRequest {
		v, err := controller.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: id, CapacityRange: &pb.CapacityRange{RequiredBytes: 16 << 20},
			VolumeCapabilities: []*pb.VolumeCapability{writer()}, Parameters: map[string]string{"storagePool": pool},
		})
		if err != nil {
			t.Fatal(err)
		}
		request := publishing(m, id)
		request.VolumeContext = v.GetVolume().GetVolumeContext()
		return request
	}
	publish := func(request *pb.NodePublishVolumeRequest) {
		t.Helper()
		if _, err := node.NodePublishVolume(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	unpublish := func(id string) {
		t.Helper()
		request := &pb.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: m.target("a")}
		if _, err := node.NodeUnpublishVolume(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	copied, plain := volume("pvc-copied", "btrfs"), volume("pvc-plain", "btrfs")
	unlimited := volume("pvc-local", "local")
	shell(t, `cd `+m.path("pool.btrfs/csi")+`
		for id in pvc-copied pvc-plain; do echo data >$id/file; mv $id ../$id; done
		btrfs subvolume create pvc-copied; mkdir pvc-plain
		for id in pvc-copied pvc-plain; do cp --reflink=never ../$id/file $id/; done`)
	for _, request := range []*pb.NodePublishVolumeRequest{copied, plain} {
		publish(request)
		unpublish(request.GetVolumeId())
	}
	if s := m.status(t); s.Pools[0].Uncounted != 2 {
		t.Errorf("%d volumes are uncounted, want 2", s.Pools[0].Uncounted)
	}
	publish(copied)
	m.says(t, true, enforce("pvc-copied"), "volume is published", m.target("a"))
	unpublish("pvc-copied")
	m.says(t, true, enforce(), "want their ids")
	m.says(t, true, enforce("pvc-nobody"), "volume not found", "pvc-nobody")
	m.says(t, true, enforce("../pvc"), "invalid volume id")
	m.says(t, true, enforce("--pool", "nowhere"), "nowhere")
	m.says(t, true, enforce("--pool", "local", "pvc-copied"), "pvc-copied is in pool btrfs, not in local")
	m.says(t, true, enforce("--inodes", "7", "--pool", "btrfs"), "--inodes", "want their ids")
	m.says(t, true, enforce("--inodes", "many", "pvc-copied"), "--inodes", "many")
	m.says(t, true, enforce("--inodes", "7", unlimited.GetVolumeId()), "cannot be done with this volume", "no ID")
	m.says(t, true, enforce(unlimited.GetVolumeId()), "cannot be done with this volume", "no ID")
	m.says(t, true, enforce("--pool", "btrfs"),
		"pvc-copied: enforced", "pvc-plain: not enforced", "1 volumes enforced", "1 volumes could not be enforced")
	if s := m.status(t); s.Pools[0].Uncounted != 1 {
		t.Errorf("%d volumes are uncounted, want 1", s.Pools[0].Uncounted)
	}
	m.says(t, true, enforce("--inodes=7", "pvc-copied"), "btrfs does not limit the number of files")
	m.says(t, true, enforce("--inodes=-1", "pvc-copied"), "inodes: -1")
	m.says(t, false, enforce("--inodes=0", "pvc-copied"), "pvc-copied: enforced")
	err := os.WriteFile(m.path("pool.btrfs/csi/pvc-copied/large"), make([]byte, 32<<20), 0o600)
	if err == nil {
		t.Error("twice the volume's size fits")
	}
}

func TestAdoptAndDiscardCommands(t *testing.T) {
	m := newMachine(t, onePool)
	if err := os.MkdirAll(m.path("pool/csi/pvc-moved"), 0o755); err != nil {
		t.Fatal(err)
	}
	controller, node := m.start(t)
	create(t, controller, "pvc-1")
	adopt := func(args ...string) []string { return append([]string{"volume", "adopt"}, args...) }
	m.says(t, true, adopt(), "arg")
	m.says(t, true, adopt("pvc-nobody"), "volume not found")
	m.says(t, true, adopt("pvc-moved"), "--size")
	m.says(t, true, adopt("pvc-moved", "--size=lots"), "--size", "lots")
	for id, size := range map[string]string{"pvc-moved": "--size=1Mi", "pvc-1": "--size=5Gi"} { // one has a record
		var pv map[string]any
		out := m.says(t, false, adopt(id, size, "--storage-class=hpp"), "name: "+id, "storage: 1Mi", "Retain",
			"volumeHandle: "+id, "storagePool: local", "worker-1", "storageClassName: hpp",
			"pv.kubernetes.io/provisioned-by: kubevirt.io.hostpath-provisioner")
		if err := yaml.UnmarshalStrict([]byte(out), &pv); err != nil {
			t.Error(err)
		}
	}
	if _, err := node.NodePublishVolume(t.Context(), publishing(m, "pvc-moved")); err != nil {
		t.Fatal(err)
	}
	discard := func(args ...string) []string { return append([]string{"volume", "discard"}, args...) }
	m.says(t, true, discard("pvc-nobody"), "volume not found")
	m.says(t, true, discard("pvc-moved"), "volume is published", m.target("a"))
	m.says(t, false, discard("pvc-1", "--pv-on=worker-2"), "volume pvc-1 is in the trash")
	if _, err := os.Stat(m.path("pool/csi/pvc-1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume's directory: %v", err)
	}
	if s := m.status(t); s.Pools[0].Volumes != 1 || s.Pools[0].Promised != 1<<20 {
		t.Errorf("left: %d volumes, %d bytes promised", s.Pools[0].Volumes, s.Pools[0].Promised)
	}
}

func TestUndeleteCommands(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: local, path: $POOL, trash: {retention: 1h}}]")
	controller, _ := m.start(t)
	create(t, controller, "pvc-1")
	m.says(t, false, []string{"volume", "discard", "pvc-1"}, "in the trash")
	var listed []struct{ Entry string }
	out := m.says(t, false, []string{"volume", "list", "--deleted", "-o", "json"}, `"id": "pvc-1"`)
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != 1 {
		t.Fatalf("%s: %v", out, err)
	}
	m.says(t, false, []string{"volume", "list", "--deleted"}, listed[0].Entry, "local", "in ")
	undelete := func(args ...string) []string { return append([]string{"volume", "undelete"}, args...) }
	m.says(t, true, undelete(), "arg")
	m.says(t, true, undelete("pvc-1"), "get trash")
	m.says(t, true, undelete("pvc-1.1"), "volume not found")
	m.says(t, false, undelete(listed[0].Entry), "name: pvc-1", "storage: 1Mi", "Retain", "storagePool: local")
	m.says(t, true, undelete(listed[0].Entry), "volume not found")
	if s := m.status(t); s.Pools[0].Volumes != 1 || s.Pools[0].Promised != 1<<20 {
		t.Errorf("undeleted: %+v", s.Pools[0])
	}
}
