package app_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// mountTmpfs mounts an empty tmpfs at a path until the test is over.
func mountTmpfs(t *testing.T, path, options string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	mounttest.Tmpfs(t, path, options)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// everythingIn describes all that is in a directory, without following links; what goes while it looks is not there.
func everythingIn(t *testing.T, directory string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			found[path], err = described(path, entry)
		}
		if errors.Is(err, fs.ErrNotExist) {
			delete(found, path)
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func described(path string, entry fs.DirEntry) (string, error) {
	info, err := entry.Info()
	if err != nil {
		return "", err
	}
	var content []byte
	if info.Mode().IsRegular() {
		content, err = os.ReadFile(path)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%s %d:%d %q", info.Mode(), stat.Uid, stat.Gid, content), err
}

func publishing(m *machine, id string) *pb.NodePublishVolumeRequest {
	return &pb.NodePublishVolumeRequest{VolumeId: id, TargetPath: m.target("a"), VolumeCapability: writer()}
}

func TestTargetIsAnotherMount(t *testing.T) {
	m := newMachine(t, onePool)
	controller, node := m.start(t)
	create(t, controller, "pvc-1")
	mountTmpfs(t, m.target("a"), "")
	writeFile(t, filepath.Join(m.target("a"), "precious"), "kept")
	_, err := node.NodePublishVolume(t.Context(), publishing(m, "pvc-1"))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("publish over a tmpfs: %v, want FailedPrecondition", err)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(m.target("a"), &stat); err != nil || stat.Type != unix.TMPFS_MAGIC {
		t.Errorf("at the target is now a filesystem of type %#x, %v; want the tmpfs", stat.Type, err)
	}
	if got, err := os.ReadFile(filepath.Join(m.target("a"), "precious")); err != nil || string(got) != "kept" {
		t.Errorf("its file: %q, %v", got, err)
	}
	if err := unix.Unmount(m.target("a"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(m.target("a"), 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("something was mounted below the tmpfs: %v", err)
	}
	if _, err := node.NodePublishVolume(t.Context(), publishing(m, "pvc-1")); err != nil {
		t.Errorf("publish once the tmpfs is gone: %v", err)
	}
}

// fill makes empty files in a directory until the filesystem has no inode for another.
func fill(t *testing.T, directory string) (files []string) {
	t.Helper()
	for i := 0; ; i++ {
		path := filepath.Join(directory, fmt.Sprintf("filler-%d", i))
		file, err := os.Create(path)
		if errors.Is(err, syscall.ENOSPC) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
}

// poolInMemory is a pool on a tmpfs. None is first used on one: this one has been.
func poolInMemory(t *testing.T, m *machine, options string) {
	t.Helper()
	mountTmpfs(t, m.path("pool"), options)
	if err := os.MkdirAll(m.path("pool/csi/.hpp"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, m.path("pool/csi/.hpp/pool.json"), `{"version":2,"id":"AAAA"}`)
}

// A volume needs more than one inode, so the first fails at its first step, the next ones with ever more of it done.
func TestDiskFullInTheMiddleOfCreate(t *testing.T) {
	m := newMachine(t, onePool)
	poolInMemory(t, m, "size=16m,nr_inodes=64")
	controller, _ := m.start(t)
	create(t, controller, "pvc-0") // makes what the driver keeps beside volumes
	fillers := fill(t, m.path("pool"))
	before := everythingIn(t, m.path("pool/csi"))
	request := &pb.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &pb.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*pb.VolumeCapability{writer()},
	}
	freed := 0
	for ; ; freed++ {
		_, err := controller.CreateVolume(t.Context(), request)
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("with %d inodes free: %v, want ResourceExhausted", freed, err)
		}
		if diff := cmp.Diff(before, everythingIn(t, m.path("pool/csi"))); diff != "" {
			t.Errorf("left with %d inodes free: %s", freed, diff)
		}
		if freed == len(fillers) {
			t.Fatalf("still refused with %d inodes free", freed)
		}
		if err := os.Remove(fillers[freed]); err != nil {
			t.Fatal(err)
		}
	}
	if freed < 2 {
		t.Errorf("a volume came with %d inodes free: no create failed in its middle", freed)
	}
	if _, err := os.Stat(m.path("pool/csi/pvc-1")); err != nil {
		t.Error(err)
	}
}

func TestNoBytesLeft(t *testing.T) {
	m := newMachine(t, onePool)
	poolInMemory(t, m, "size=1m")
	controller, _ := m.start(t)
	request := &pb.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &pb.CapacityRange{RequiredBytes: 4096},
		VolumeCapabilities: []*pb.VolumeCapability{writer()},
	}
	if _, err := controller.GetCapacity(t.Context(), &pb.GetCapacityRequest{}); err != nil { // the pool is in use
		t.Fatal(err)
	}
	filler := m.path("pool/filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("1 MiB fits beside what the driver keeps: %v", err)
	}
	before := everythingIn(t, m.path("pool/csi"))
	if _, err := controller.CreateVolume(t.Context(), request); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("create on a full disk: %v, want ResourceExhausted", err)
	}
	if diff := cmp.Diff(before, everythingIn(t, m.path("pool/csi"))); diff != "" {
		t.Errorf("left: %s", diff)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := controller.CreateVolume(t.Context(), request); err != nil {
		t.Errorf("create with room again: %v", err)
	}
}

// A link in the place of a volume's directory leads nowhere: not for a name without a record, not for a volume, not
// after a restart.
func TestPlantedLinksAreNotFollowed(t *testing.T) {
	m := newMachine(t, onePool)
	outside := m.path("outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(outside, "precious"), "kept")
	controller, node := m.start(t)
	create(t, controller, "pvc-replaced")
	if err := os.Rename(m.path("pool/csi/pvc-replaced"), m.path("away")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"pvc-planted", "pvc-replaced"} {
		if err := os.Symlink(outside, m.path("pool/csi/"+id)); err != nil {
			t.Fatal(err)
		}
	}
	before := [...]map[string]string{everythingIn(t, outside), everythingIn(t, m.path("pool/csi"))}
	m.refuse(t, controller, node)
	if err := m.stop(t, syscall.SIGKILL); err == nil {
		t.Error("killed, and exited 0")
	}
	controller, node = m.start(t)
	m.refuse(t, controller, node)
	after := [...]map[string]string{everythingIn(t, outside), everythingIn(t, m.path("pool/csi"))}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("changed: %s", diff)
	}
}

// refuse checks that volumes in whose place is a link are neither made, published nor deleted: pvc-replaced, and
// pvc-planted, which never was one.
func (m *machine) refuse(t *testing.T, controller pb.ControllerClient, node pb.NodeClient) {
	t.Helper()
	for id, want := range map[string]struct{ create, publish, remove codes.Code }{
		"pvc-replaced": {codes.FailedPrecondition, codes.FailedPrecondition, codes.FailedPrecondition},
		"pvc-planted":  {codes.FailedPrecondition, codes.FailedPrecondition, codes.OK},
	} {
		_, err := controller.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: id, CapacityRange: &pb.CapacityRange{RequiredBytes: 1 << 20},
			VolumeCapabilities: []*pb.VolumeCapability{writer()},
			Parameters:         map[string]string{"directoryMode": "2750", "uid": "1000", "gid": "2000"},
		})
		if status.Code(err) != want.create {
			t.Errorf("create %s: %v, want %s", id, err, want.create)
		}
		if _, err := node.NodePublishVolume(t.Context(), publishing(m, id)); status.Code(err) != want.publish {
			t.Errorf("publish %s: %v, want %s", id, err, want.publish)
		}
		_, err = controller.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id})
		if status.Code(err) != want.remove {
			t.Errorf("delete %s: %v, want %s", id, err, want.remove)
		}
	}
	if entries, err := os.ReadDir(m.target("a")); err == nil && len(entries) > 0 {
		t.Errorf("at the target is %v", entries)
	}
}
