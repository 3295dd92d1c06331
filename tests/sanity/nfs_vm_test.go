//go:build vm

package sanity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// nfs is what a pool with scope shared lies on in the VM of TestNFS: the kernel serves /export, and mounts it as often
// as there are drivers, each time as another machine would, with a cache of its own.
const nfs = "shared-nfs"

// exportOnce makes the kernel an NFS server without a daemon: what rpc.mountd would answer is written beforehand
// (fs/nfsd/export.c, net/sunrpc/svcauth_unix.c).
func exportOnce(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/export/pool"); err == nil {
		return
	}
	for _, m := range []struct{ kind, source, target string }{
		{"ext4", "/dev/disk/ext4", "/export"}, {"nfsd", "nfsd", "/proc/fs/nfsd"},
	} {
		must(t, os.MkdirAll(m.target, 0o755))
		must(t, unix.Mount(m.source, m.target, m.kind, 0, ""))
	}
	must(t, os.Mkdir("/export/pool", 0o755))
	for _, answer := range []struct{ file, text string }{
		{"/proc/fs/nfsd/versions", "-3 +4 +4.1 +4.2"},
		{"/proc/fs/nfsd/nfsv4leasetime", "10"},
		{"/proc/fs/nfsd/nfsv4gracetime", "10"},
		{"/proc/net/rpc/auth.unix.ip/channel", "nfsd 127.0.0.1 2147483647 nodes"},
		// Flags: NFSEXP_INSECURE_PORT, NFSEXP_NOSUBTREECHECK and NFSEXP_FSID (include/uapi/linux/nfsd/export.h); root
		// stays root. Then the IDs of nobody, and the filesystem's number.
		{"/proc/net/rpc/nfsd.export/channel", "nodes /export 2147483647 9218 65534 65534 0"},
		{"/proc/net/rpc/nfsd.fh/channel", `nodes 1 \x00000000 2147483647 /export`},
		{"/proc/fs/nfsd/portlist", "tcp 2049"},
		{"/proc/fs/nfsd/threads", "4"},
	} {
		if err := os.WriteFile(answer.file, []byte(answer.text+"\n"), 0o600); err != nil {
			t.Fatalf("serve NFS: write %q: %v", answer.text, err)
		}
	}
}

// mountNFS mounts the export as one node does.
func mountNFS(t *testing.T, pool string) {
	t.Helper()
	exportOnce(t)
	const options = "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,nosharecache,hard"
	if err := unix.Mount("127.0.0.1:/pool", pool, "nfs4", 0, options); err != nil {
		t.Fatalf("mount the NFS export: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNFS: two nodes share a pool on NFS. What one answers is so for the other, and both at once make one volume.
func TestNFS(t *testing.T) {
	drivers := []*instance{startNode(t, buildDriver(t), nfs, "one"), startNode(t, buildDriver(t), nfs, "two")}
	var nodes []pb.ControllerClient
	for _, d := range drivers {
		conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(t, err)
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, pb.NewControllerClient(conn))
	}
	const volumes = 20
	var both sync.WaitGroup
	for _, node := range nodes {
		both.Go(func() { makeAll(t, node, volumes) })
	}
	both.Wait()
	var ids []string
	for _, node := range nodes {
		ids = listed(t, node, volumes)
	}
	writtenByOneReadByTwo(t, drivers)
	for _, node := range nodes {
		both.Go(func() { deleteAll(t, node, ids) })
	}
	both.Wait()
	for i, node := range nodes {
		listed(t, node, 0)
		drivers[i].checkClean(t)
	}
}

func makeAll(t *testing.T, node pb.ControllerClient, volumes int) {
	for i := range volumes {
		err := again(func() error {
			_, err := node.CreateVolume(t.Context(), creation(fmt.Sprintf("pvc-%d", i)))
			return err
		})
		if err != nil {
			t.Errorf("make volume %d: %v", i, err)
		}
	}
}

// again asks as csi-provisioner does while the other node works on the same volume, which is answered with Aborted.
func again(ask func() error) error {
	const most = 100
	var err error
	for range most {
		if err = ask(); status.Code(err) != codes.Aborted {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// listed waits until a node lists that many volumes: NFS shows what another has done once its own copy of a directory
// is old, which takes up to a minute (acdirmax of nfs(5)). A list that takes too long is asked for again.
func listed(t *testing.T, node pb.ControllerClient, number int) (ids []string) {
	t.Helper()
	const most = 200
	var answer *pb.ListVolumesResponse
	var err error
	for range most {
		answer, err = node.ListVolumes(t.Context(), &pb.ListVolumesRequest{})
		if err == nil && len(answer.GetEntries()) == number || err != nil &&
			status.Code(err) != codes.DeadlineExceeded {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	for _, entry := range answer.GetEntries() {
		ids = append(ids, entry.GetVolume().GetVolumeId())
	}
	if err != nil || len(ids) != number {
		t.Fatalf("a driver lists %v (%v), want %d volumes", ids, err, number)
	}
	return ids
}

// deleteAll deletes volumes through a node; that the other deletes the same at the same time is no error.
func deleteAll(t *testing.T, by pb.ControllerClient, ids []string) {
	for _, id := range ids {
		err := again(func() error {
			_, err := by.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id})
			return err
		})
		if err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

// writtenByOneReadByTwo: a file that was closed on one node is there on the other (close-to-open).
func writtenByOneReadByTwo(t *testing.T, drivers []*instance) {
	t.Helper()
	for i := range 5 {
		file, text := filepath.Join(fmt.Sprintf("pvc-%d", i), "file"), fmt.Sprintf("text %d", i)
		must(t, os.WriteFile(filepath.Join(drivers[0].csi, file), []byte(text), 0o600))
		got, err := os.ReadFile(filepath.Join(drivers[1].csi, file))
		if err != nil || string(got) != text {
			t.Errorf("%s on the other node: %q, %v, want %q", file, got, err, text)
		}
	}
}
