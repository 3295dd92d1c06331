//go:build vm

package powercut

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

const (
	poolPath       = "/pool"
	socket         = "/run/csi.sock"
	metricsAddress = "127.0.0.1:9808"
)

// TestServe starts the driver on the pool's disk and does what the other end of the serial line asks for, several things
// at once, until the power is cut. A request is one line: number, verb, volume, bytes; its answer too: number, "ok" or
// "error", and more.
func TestServe(t *testing.T) {
	s := serve(t)
	var line sync.Mutex // one line at a time
	say := func(text string) {
		line.Lock()
		defer line.Unlock()
		if _, err := os.Stdout.WriteString(text + "\n"); err != nil {
			t.Error(err)
		}
	}
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
			}
			say(fields[0] + " " + answer)
		}()
	}
	t.Fatalf("the line is cut: %v", requests.Err())
}

type server struct {
	controller csi.ControllerClient
	node       csi.NodeClient
}

// serve mounts the disks, starts the driver as `make test-sanity` does, and waits until it answers.
func serve(t *testing.T) *server {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kind := os.Args[len(os.Args)-1]
	options := map[string]string{"xfs": "prjquota", "ext4": "prjquota", "btrfs": ""}[kind]
	for _, dir := range []string{poolPath, "/state", "/kubelet"} {
		must(os.MkdirAll(dir, 0o700))
	}
	must(unix.Mount("/dev/disk/pool", poolPath, kind, 0, options))
	must(unix.Mount("/dev/disk/state", "/state", "ext4", 0, ""))
	must(os.MkdirAll("/state/driver", 0o700))
	config := "storagePools:\n- {name: power, path: " + poolPath + ", requireMount: true, quota: required}\n"
	must(os.WriteFile("/run/config.yaml", []byte(config), 0o600))
	console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	must(err)
	driver := exec.Command("/driver", "--standalone", "--registration=false", "--node-name=vm", "--http-address="+metricsAddress,
		"--log-format=text", "--endpoint=unix://"+socket, "--config=/run/config.yaml", "--host-root=/",
		"--state-dir=/state/driver", "--kubelet-dir=/kubelet")
	driver.Stdout, driver.Stderr = console, console
	must(driver.Start())
	go func() {
		panic(fmt.Sprintf("the driver ended: %v", driver.Wait())) // the VM is of no use any more
	}()
	for _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(socket) {
		time.Sleep(10 * time.Millisecond)
	}
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	return &server{controller: csi.NewControllerClient(connection), node: csi.NewNodeClient(connection)}
}

func (s *server) do(ctx context.Context, request []string) (string, error) {
	if request[0] == "state" {
		return s.state()
	}
	id := request[1]
	bytes := int64(0)
	if len(request) > 2 {
		parsed, err := strconv.ParseInt(request[2], 10, 64)
		if err != nil {
			return "", err
		}
		bytes = parsed
	}
	switch request[0] {
	case "create":
		answer, err := s.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name:          id,
			CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
			Parameters:    map[string]string{"storagePool": "power"},
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}},
		})
		return ok(answer.GetVolume().GetCapacityBytes(), err)
	case "expand":
		answer, err := s.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId: id, VolumePath: "/kubelet/" + id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		})
		return ok(answer.GetCapacityBytes(), err)
	case "delete":
		_, err := s.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		return ok(0, err)
	case "mark":
		disk, err := poolfs.NewHost("/").Open(poolPath)
		if err != nil {
			return "", err
		}
		return ok(0, errors.Join(mark(disk, id), disk.Close()))
	default:
		return "", fmt.Errorf("unknown verb %q", request[0])
	}
}

func ok(bytes int64, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("%s: %w", status.Code(err), err)
	}
	return "ok " + strconv.FormatInt(bytes, 10), nil
}

func (s *server) state() (string, error) {
	disk, err := poolfs.NewHost("/").Open(poolPath)
	if err != nil {
		return "", err
	}
	state, err := look(disk)
	if err = errors.Join(err, disk.Close()); err != nil {
		return "", err
	}
	data, err := json.Marshal(state)
	return "ok " + string(data), err
}
