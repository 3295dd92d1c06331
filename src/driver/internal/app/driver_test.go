package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// asDriver makes this test binary be the driver, so that the tests have a real process to start, signal and kill.
const asDriver = "HPP_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		os.Exit(app.Run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// machine is a node: directories, and at most one driver process at a time.
type machine struct {
	dir, http string
	process   *exec.Cmd
	log       *loggingtest.Log
	// args come after all others.
	args []string
}

func newMachine(t *testing.T, config string) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	m := &machine{dir: t.TempDir(), http: freeAddress(t)}
	for _, path := range []string{m.path("pool"), m.path("kubelet/plugins_registry"), filepath.Dir(m.target("a"))} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.configure(t, config)
	t.Cleanup(func() {
		if m.process != nil {
			_ = m.process.Process.Kill()
			_ = m.process.Wait()
		}
		_ = unix.Unmount(m.target("a"), unix.MNT_DETACH)
		if t.Failed() && m.log != nil {
			t.Logf("the driver's log:\n%s", m.log)
		}
	})
	return m
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// configure writes the configuration, which the driver reads when it starts.
func (m *machine) configure(t *testing.T, config string) {
	t.Helper()
	config = strings.ReplaceAll(config, "$POOL", m.path("pool"))
	if err := os.WriteFile(m.path("config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) target(name string) string {
	return m.path("kubelet/pods/" + name + "/volumes/kubernetes.io~csi/pvc-1/mount")
}

// command is the driver with arguments.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, os.Args[0], args...)
	command.Env = append(os.Environ(), asDriver+"=1")
	return command
}

func (m *machine) serveArgs() []string {
	return append([]string{
		"--endpoint=unix://" + m.path("csi.sock"), "--node-name=worker-1", "--config=" + m.path("config.yaml"),
		"--state-dir=" + m.path("state"),
		"--host-root=/", "--kubelet-dir=" + m.path("kubelet"), "--http-address=" + m.http, "--standalone",
		"--log-level=debug",
	}, m.args...)
}

// start starts the driver and gives clients that wait for it.
func (m *machine) start(t *testing.T) (pb.ControllerClient, pb.NodeClient) {
	t.Helper()
	m.log = &loggingtest.Log{}
	m.process = m.command(context.WithoutCancel(t.Context()), m.serveArgs()...)
	m.process.Stderr = m.log
	if err := m.process.Start(); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, m.path("csi.sock"))
	return pb.NewControllerClient(conn), pb.NewNodeClient(conn)
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stop signals the driver and waits for its end.
func (m *machine) stop(t *testing.T, signal os.Signal) error {
	t.Helper()
	if err := m.process.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := m.process.Wait()
	m.process = nil
	return err
}

// run runs one of the driver's commands to its end.
func (m *machine) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := m.command(t.Context(), args...).CombinedOutput()
	return string(out), err
}

func (m *machine) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return fetch(t, http.DefaultClient, "http://"+m.http+path)
}

func fetch(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func writer() *pb.VolumeCapability {
	return &pb.VolumeCapability{
		AccessMode: &pb.VolumeCapability_AccessMode{Mode: pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &pb.VolumeCapability_Mount{Mount: &pb.VolumeCapability_MountVolume{}},
	}
}

func create(t *testing.T, c pb.ControllerClient, name string) *pb.Volume {
	t.Helper()
	created, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: name, CapacityRange: &pb.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*pb.VolumeCapability{writer()},
		Parameters:         map[string]string{"directoryMode": "2750", "uid": "1000", "gid": "2000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return created.GetVolume()
}

const onePool = "storagePools: [{name: local, path: $POOL, inline: true}]"

func TestVolumeLifecycle(t *testing.T) {
	m := newMachine(t, onePool)
	controller, node := m.start(t)
	v := create(t, controller, "pvc-1")
	if got := v.GetAccessibleTopology()[0].GetSegments()["topology.hostpath.csi/node"]; got != "worker-1" {
		t.Errorf("accessible from %q", got)
	}
	data := m.path("pool/csi/pvc-1")
	var stat unix.Stat_t
	if err := unix.Stat(data, &stat); err != nil || stat.Mode&0o7777 != 0o2750 || stat.Uid != 1000 || stat.Gid != 2000 {
		t.Errorf("the directory: %v, mode %o, owner %d:%d", err, stat.Mode&0o7777, stat.Uid, stat.Gid)
	}
	publish := &pb.NodePublishVolumeRequest{
		VolumeId: "pvc-1", TargetPath: m.target("a"), VolumeCapability: writer(),
		VolumeContext: v.GetVolumeContext(),
	}
	if _, err := node.NodePublishVolume(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.target("a"), "file"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(data, "file")); err != nil || string(got) != "hello" {
		t.Errorf("in the pool: %q, %v", got, err)
	}
	stats, err := node.NodeGetVolumeStats(t.Context(), &pb.NodeGetVolumeStatsRequest{
		VolumeId:   "pvc-1",
		VolumePath: m.target("a"),
	})
	if err != nil || stats.GetUsage()[0].GetTotal() <= 0 {
		t.Errorf("stats: %v, %v", stats, err)
	}
	if _, err := controller.DeleteVolume(t.Context(),
		&pb.DeleteVolumeRequest{VolumeId: "pvc-1"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("delete while published: %v", err)
	}
	if _, err := node.NodeUnpublishVolume(t.Context(), &pb.NodeUnpublishVolumeRequest{
		VolumeId:   "pvc-1",
		TargetPath: m.target("a"),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(m.target("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target after unpublish: %v", err)
	}
	if _, err := controller.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: "pvc-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory after delete: %v", err)
	}
}

func TestInlineVolume(t *testing.T) {
	m := newMachine(t, onePool)
	_, node := m.start(t)
	_, err := node.NodePublishVolume(t.Context(), &pb.NodePublishVolumeRequest{
		VolumeId: "csi-0a", TargetPath: m.target("a"), VolumeCapability: writer(),
		VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true", "size": "1Mi"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.path("pool/csi/csi-0a")); err != nil {
		t.Error(err)
	}
	if _, err := node.NodeUnpublishVolume(t.Context(), &pb.NodeUnpublishVolumeRequest{
		VolumeId:   "csi-0a",
		TargetPath: m.target("a"),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(m.path("pool/csi/csi-0a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after unpublish: %v", err)
	}
}

func TestVolumesOutliveTheDriver(t *testing.T) {
	m := newMachine(t, onePool)
	controller, _ := m.start(t)
	create(t, controller, "pvc-1")
	if err := m.stop(t, syscall.SIGKILL); err == nil {
		t.Error("killed, and exited 0")
	}
	controller, _ = m.start(t)
	list, err := controller.ListVolumes(t.Context(), &pb.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) > 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if _, err := controller.ControllerGetVolume(t.Context(),
		&pb.ControllerGetVolumeRequest{VolumeId: "pvc-1"}); err != nil {
		t.Error(err)
	}
	if err := m.stop(t, syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	for _, socket := range []string{
		"csi.sock", "state/admin.sock",
		"kubelet/plugins_registry/kubevirt.io.hostpath-provisioner-reg.sock",
	} {
		if _, err := os.Lstat(m.path(socket)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after SIGTERM: %v", socket, err)
		}
	}
}

func TestASecondDriverRefuses(t *testing.T) {
	m := newMachine(t, onePool)
	controller, _ := m.start(t)
	create(t, controller, "pvc-1")
	out, err := m.run(t, m.serveArgs()...)
	if err == nil || !strings.Contains(out, "another driver has locked "+m.path("state/lock")) {
		t.Errorf("the second: %v: %s", err, out)
	}
	if _, err := controller.ControllerGetVolume(t.Context(),
		&pb.ControllerGetVolumeRequest{VolumeId: "pvc-1"}); err != nil {
		t.Errorf("the first: %v", err)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	m := newMachine(t, onePool)
	controller, _ := m.start(t)
	create(t, controller, "pvc-1")
	if code, body := m.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body := m.get(t, "/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "registration: the kubelet has not answered yet") {
		t.Errorf("/readyz before the kubelet: %d %s", code, body)
	}
	kubelet := pluginregistration.NewRegistrationClient(dial(t,
		m.path("kubelet/plugins_registry/kubevirt.io.hostpath-provisioner-reg.sock")))
	info, err := kubelet.GetInfo(t.Context(), &pluginregistration.InfoRequest{})
	if err != nil || info.GetEndpoint() != m.path("csi.sock") {
		t.Errorf("registration: %v, %v", info, err)
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(),
		&pluginregistration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	if code, body := m.get(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, body)
	}
	handled := func(service, method string) string {
		return fmt.Sprintf(`grpc_server_handled_total{grpc_code="OK",grpc_method="%s",grpc_service="csi.v1.%s",`+
			`grpc_type="unary"}`, method, service)
	}
	_, body := m.get(t, "/metrics")
	for _, sample := range []string{
		`hpp_pool_present{pool="local"} 1`, `hpp_pool_volumes{pool="local"} 1`, `hpp_build_info{version="0.0.0-dev"} 1`,
		"process_open_fds",
		handled("Controller", "CreateVolume") + " 1",
		`hpp_grpc_handling_seconds_count{grpc_code="OK",grpc_method="CreateVolume"} 1`,
		// There before the first call: tests/e2e/health_test.go waits for it to grow.
		handled("Node", "NodeGetVolumeHealth") + " 0",
	} {
		if !strings.Contains(body, sample) {
			t.Errorf("/metrics lacks %s", sample)
		}
	}
}

func TestCommands(t *testing.T) {
	m := newMachine(t, onePool)
	controller, _ := m.start(t)
	create(t, controller, "pvc-1")
	stateDir := "--state-dir=" + m.path("state")
	if out, err := m.run(t, "status", stateDir); err != nil || !strings.Contains(out, "worker-1") ||
		!strings.Contains(out, "present") {
		t.Errorf("status: %v: %s", err, out)
	}
	out, err := m.run(t, "status", "-o", "json", stateDir)
	var s nodeapi.Status
	if err != nil || json.Unmarshal([]byte(out), &s) != nil || len(s.Pools) != 1 || s.Pools[0].Volumes != 1 {
		t.Errorf("status -o json: %v: %s", err, out)
	}
	if out, err := m.run(t, "pool", "forget", "local", stateDir); err == nil || !strings.Contains(out, "present") {
		t.Errorf("forget a pool that is there: %v: %s", err, out)
	}
	if out, err := m.run(t, "pool", "take", "local", stateDir); err == nil || !strings.Contains(out, `"from" not set`) {
		t.Errorf("took a pool from nobody: %v: %s", err, out)
	}
	out, err = m.run(t, "pool", "take", "local", "--from", "another", stateDir)
	if err == nil || !strings.Contains(out, "belongs to its node") {
		t.Errorf("took a node's own pool: %v: %s", err, out)
	}
	if out, err := m.run(t, "pool", "forget", "other", stateDir); err != nil || !strings.Contains(out, "it is noted") {
		t.Errorf("forget a pool that never was here: %v: %s", err, out)
	}
	out, err = m.run(t, "pool", "forget", "../lock", stateDir)
	if err == nil || !strings.Contains(out, "no pool's name") {
		t.Errorf("forget what is no pool's name: %v: %s", err, out)
	}
	m.replacePool(t)
	if out, err := m.run(t, "pool", "forget", "local", stateDir); err != nil {
		t.Errorf("forget an absent pool: %v: %s", err, out)
	}
	create(t, controller, "pvc-2")
}

// replacePool puts an empty directory in the pool's place.
func (m *machine) replacePool(t *testing.T) {
	t.Helper()
	if err := os.Rename(m.path("pool"), m.path("pool.old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.path("pool"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestADriverWithoutPoolsServes(t *testing.T) {
	m := newMachine(t, "storagePools: []")
	controller, _ := m.start(t)
	got, err := controller.GetCapacity(t.Context(), &pb.GetCapacityRequest{})
	if err != nil || got.GetAvailableCapacity() != 0 {
		t.Errorf("capacity: %v, %v", got, err)
	}
	_, err = controller.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name:               "v",
		VolumeCapabilities: []*pb.VolumeCapability{writer()},
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("create: %v", err)
	}
}

func TestTheDriverRefusesToStart(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		args   []string
		says   []string
	}{
		"options": {onePool, []string{
			"--endpoint=csi.sock", "--node-name=", "--http-address=here",
			"--log-format=xml",
		}, []string{"--endpoint", "--node-name", "--http-address", "--log-format"}},
		"unknown option":  {onePool, []string{"--nodename=x"}, []string{"--nodename"}},
		"unknown command": {onePool, []string{"statsu"}, []string{"statsu"}},
		"no config":       {onePool, []string{"--config=/nowhere.yaml"}, []string{"--config", "/nowhere.yaml"}},
		"unknown key": {
			"storagePools: [{name: local, path: $POOL, sized: 5}]", nil,
			[]string{"storagePools[0].sized: Forbidden: unknown field"},
		},
		"shared pool": {
			"storagePools: [{name: local, path: $POOL, scope: shared, quota: required, maxVolumes: 5}]", nil,
			[]string{"storagePools[0].quota", "has no quota", "storagePools[0].maxVolumes"},
		},
		"pool holds state": {"storagePools: [{name: local, path: $POOL/..}]", nil, []string{"storagePools[0].path"}},
		"state in pool": {
			onePool,
			[]string{"--state-dir=$POOL/state"},
			[]string{"storagePools[0].path", "--state-dir"},
		},
		"state in memory": {
			onePool,
			[]string{"--state-dir=/dev/shm"},
			[]string{"--state-dir: /dev/shm is on a tmpfs", "pool local", "requireMount"},
		},
		"pool in kubelet's": {
			"storagePools: [{name: local, path: $POOL/kubelet/x}]",
			[]string{"--kubelet-dir=$POOL/kubelet"},
			[]string{"storagePools[0].path", "--kubelet-dir"},
		},
		"TLS options": {
			onePool,
			[]string{
				"--metrics-tls-address=x", "--metrics-tls-min-version=1.2",
				"--metrics-tls-cipher-suites=AES128-SHA",
			},
			[]string{
				"--metrics-tls-address", "--metrics-tls-cert-dir", "--metrics-tls-min-version", "VersionTLS12",
				"--metrics-tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
			},
		},
		"no certificate": {
			onePool,
			[]string{"--metrics-tls-address=127.0.0.1:0", "--metrics-tls-cert-dir=/nowhere"},
			[]string{"--metrics-tls-cert-dir", "/nowhere/tls.crt"},
		},
		"no namespace": {onePool, []string{"--standalone=false"}, []string{"--pod-namespace", "--standalone"}},
		"no cluster": {
			onePool, []string{"--standalone=false", "--pod-namespace=storage"}, []string{"KUBERNETES_SERVICE_HOST"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, test.config)
			args := m.serveArgs()
			for _, arg := range test.args {
				args = append(args, strings.ReplaceAll(arg, "$POOL", m.path("pool")))
			}
			out, err := m.run(t, args...)
			if err == nil {
				t.Fatalf("it ran: %s", out)
			}
			for _, part := range test.says {
				if !strings.Contains(out, part) {
					t.Errorf("%q is not in: %s", part, out)
				}
			}
			if entries, err := os.ReadDir(m.path("pool")); err != nil || len(entries) > 0 {
				t.Errorf("left in the pool: %v, %v", fmt.Sprint(entries), err)
			}
		})
	}
}
