//go:build vm

package powercuttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	poolPath       = "/pool"
	socket         = "/run/csi.sock"
	metricsAddress = "127.0.0.1:9808"
)

// TestServe says what is on the pool's disk, starts the driver on it and does what the other end of the serial line
// asks for, several things at once, until the power is cut. A request is one line: a key, verb, id, bytes, and the id
// of what it is made of or "-"; its answer too: the key, "ok" or "error", and more.
func TestServe(t *testing.T) {
	mount(t)
	var line sync.Mutex // one line at a time
	say := func(text string) {
		line.Lock()
		defer line.Unlock()
		if _, err := os.Stdout.WriteString(text + "\n"); err != nil {
			t.Error(err)
		}
	}
	found, err := state(look)
	must(t, err)
	say("found " + found)
	s := serve(t)
	say("ready")
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		fields := strings.Fields(requests.Text())
		if len(fields) < 2 {
			continue
		}
		go func() {
			answer, err := s.do(t.Context(), fields[1:])
			if err != nil {
				answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
			} else {
				answer = "ok " + answer
			}
			say(fields[0] + " " + answer)
		}()
	}
	t.Fatalf("the line is cut: %v", requests.Err())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mount mounts the disks of the pool and of the driver's state.
func mount(t *testing.T) {
	t.Helper()
	kind := os.Args[len(os.Args)-1]
	options := map[string]string{"xfs": "prjquota", "ext4": "prjquota", "btrfs": ""}[kind]
	for _, dir := range []string{poolPath, "/state", "/kubelet"} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, unix.Mount("/dev/disk/pool", poolPath, kind, 0, options))
	must(t, unix.Mount("/dev/disk/state", "/state", "ext4", 0, ""))
	must(t, os.MkdirAll("/state/driver", 0o700))
}

type server struct {
	controller csi.ControllerClient
	node       csi.NodeClient
}

// serve starts the driver as `make test-sanity` does, and waits until its pool is recovered.
func serve(t *testing.T) *server {
	t.Helper()
	config := "storagePools:\n- {name: power, path: " + poolPath + ", requireMount: true, quota: required}\n"
	must(t, os.WriteFile("/run/config.yaml", []byte(config), 0o600))
	console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	must(t, err)
	driver := exec.Command("/driver", "--standalone", "--registration=false", "--node-name=vm",
		"--http-address="+metricsAddress, "--log-format=text", "--endpoint=unix://"+socket, "--config=/run/config.yaml",
		"--host-root=/", "--state-dir=/state/driver", "--kubelet-dir=/kubelet")
	driver.Stdout, driver.Stderr = console, console
	must(t, driver.Start())
	go func() {
		panic(fmt.Sprintf("the driver ended: %v", driver.Wait())) // the VM is of no use any more
	}()
	const looks = 6000
	present := float64(0)
	for range looks { // the VM is slow
		if present, err = metric("present"); err == nil && present == 1 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if present != 1 {
		t.Fatalf("the driver does not use its pool after %d looks: %v", looks, err)
	}
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	return &server{controller: csi.NewControllerClient(connection), node: csi.NewNodeClient(connection)}
}

func (s *server) do(ctx context.Context, request []string) (string, error) {
	if request[0] == "state" {
		return state(lookBesideDriver)
	}
	if len(request) != 4 {
		return "", fmt.Errorf("want verb, id, bytes and source: %q", request)
	}
	id, source := request[1], request[3]
	bytes, err := strconv.ParseInt(request[2], 10, 64)
	if err != nil {
		return "", err
	}
	switch request[0] {
	case "create":
		return s.create(ctx, id, bytes, source)
	case "snapshot":
		return s.snapshot(ctx, id, source)
	case "expand":
		answer, err := persist(ctx, s.node.NodeExpandVolume, &csi.NodeExpandVolumeRequest{
			VolumeId: id, VolumePath: "/kubelet/" + id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		})
		return size(answer.GetCapacityBytes(), err)
	case "delete":
		if nodeapi.IsSnapshotID(id) {
			_, err = persist(ctx, s.controller.DeleteSnapshot, &csi.DeleteSnapshotRequest{SnapshotId: id})
		} else {
			_, err = persist(ctx, s.controller.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: id})
		}
		return size(0, err)
	case "mark":
		sum := ""
		err := onPool(func(d disk.FS) (err error) {
			sum, err = mark(ctx, d, id, bytes)
			return err
		})
		return sum, err
	default:
		return "", fmt.Errorf("unknown verb %q", request[0])
	}
}

// persist asks again while the driver is at it, as Kubernetes does: its copy takes time, or the VM is slow.
func persist[Q, A any](
	ctx context.Context, ask func(context.Context, Q, ...grpc.CallOption) (A, error), q Q,
) (answer A, err error) {
	for {
		answer, err = ask(ctx, q)
		if code := status.Code(err); code != codes.Aborted && code != codes.DeadlineExceeded {
			return answer, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// create makes a volume, or has it made of a snapshot or a volume.
func (s *server) create(ctx context.Context, id string, bytes int64, source string) (string, error) {
	q := &csi.CreateVolumeRequest{
		Name:          id,
		CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		Parameters:    map[string]string{"storagePool": "power"},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
	switch {
	case source == "-":
	case nodeapi.IsSnapshotID(source):
		from := &csi.VolumeContentSource_SnapshotSource{SnapshotId: source}
		q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: from}}
	default:
		from := &csi.VolumeContentSource_VolumeSource{VolumeId: source}
		q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: from}}
	}
	answer, err := persist(ctx, s.controller.CreateVolume, q)
	return size(answer.GetVolume().GetCapacityBytes(), err)
}

// snapshot makes the snapshot that has the id, and asks again until it can be used.
func (s *server) snapshot(ctx context.Context, id, volume string) (string, error) {
	uid, _, _ := strings.Cut(strings.TrimPrefix(id, "snap-"), ".")
	q := &csi.CreateSnapshotRequest{Name: "snapshot-" + uid, SourceVolumeId: volume}
	for {
		answer, err := persist(ctx, s.controller.CreateSnapshot, q)
		if got := answer.GetSnapshot().GetSnapshotId(); err == nil && got != id {
			return "", fmt.Errorf("the snapshot of volume %s is %s, want %s", volume, got, id)
		}
		if err != nil || answer.GetSnapshot().GetReadyToUse() {
			return size(answer.GetSnapshot().GetSizeBytes(), err)
		}
	}
}

func size(bytes int64, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("%s: %w", status.Code(err), err)
	}
	return strconv.FormatInt(bytes, 10), nil
}

// state is what a look at the pool's disk gives.
func state(look func(disk.FS) (State, error)) (string, error) {
	var s State
	err := onPool(func(d disk.FS) (err error) {
		s, err = look(d)
		return err
	})
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(s)
	return string(data), err
}

// onPool opens the pool for one piece of work. Before the driver first ran there is nothing to open.
func onPool(do func(disk.FS) error) error {
	d, err := disk.NewHost("/").Open(poolPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}
