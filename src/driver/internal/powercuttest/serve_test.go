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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

const (
	poolPath       = "/pool"
	socket         = "/run/csi.sock"
	metricsAddress = "127.0.0.1:9808"
)

// TestServe says what is on the pool's disk, starts the driver on it and does what the other end of the serial line
// asks for, several things at once, until the power is cut. A request is one line: a key, verb, volume, bytes; its
// answer too: the key, "ok" or "error", and more.
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
	const looks = 1200
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
		return size(answer.GetVolume().GetCapacityBytes(), err)
	case "expand":
		answer, err := s.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId: id, VolumePath: "/kubelet/" + id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		})
		return size(answer.GetCapacityBytes(), err)
	case "delete":
		_, err := s.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		return size(0, err)
	case "mark":
		return size(0, onPool(func(d disk.FS) error { return mark(d, id) }))
	default:
		return "", fmt.Errorf("unknown verb %q", request[0])
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
