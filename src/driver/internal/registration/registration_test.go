package registration_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/registration"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server and gives its socket; stop ends it and waits.
func start(t *testing.T, directory string) (server *registration.Server, socket string, stop func()) {
	t.Helper()
	return startLeaving(t, directory, nil)
}

func startLeaving(
	t *testing.T, directory string, leaving func(context.Context) bool,
) (server *registration.Server, socket string, stop func()) {
	t.Helper()
	server, err := registration.New(registration.Config{
		Directory: directory, DriverName: "hpp", CSISocket: "/var/lib/kubelet/plugins/hpp/csi.sock",
		Interval: time.Millisecond, Leaving: leaving,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { server.Run(ctx); close(done) }()
	return server, filepath.Join(directory, "hpp-reg.sock"), func() { cancel(); <-done }
}

// kubelet does what the kubelet's plugin watcher does with a new socket; it waits until somebody answers there.
func kubelet(
	t *testing.T, socket string, status *pluginregistration.RegistrationStatus,
) *pluginregistration.PluginInfo {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := pluginregistration.NewRegistrationClient(conn)
	info, err := client.GetInfo(t.Context(), &pluginregistration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.NotifyRegistrationStatus(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	return info
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRegisters(t *testing.T) {
	server, socket, stop := start(t, t.TempDir())
	if err := server.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "has not answered yet") {
		t.Errorf("before: %v", err)
	}
	info := kubelet(t, socket, &pluginregistration.RegistrationStatus{PluginRegistered: true})
	want := &pluginregistration.PluginInfo{
		Type: "CSIPlugin", Name: "hpp", Endpoint: "/var/lib/kubelet/plugins/hpp/csi.sock",
		SupportedVersions: []string{"1.0.0"},
	}
	if diff := cmp.Diff(want, info, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if err := server.Check(t.Context()); err != nil {
		t.Errorf("after: %v", err)
	}
	stop()
	if exists(socket) {
		t.Error("the socket is still there")
	}
}

// TestStaysForTheNextDriver: in a rollout the kubelet must not forget the driver, and finds the next one behind the
// file that this one has left.
func TestStaysForTheNextDriver(t *testing.T) {
	directory := t.TempDir()
	for _, leaving := range []bool{false, false, true} {
		_, socket, stop := startLeaving(t, directory, func(ctx context.Context) bool {
			if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
				t.Errorf("asked with %v, bounded: %v", ctx.Err(), bounded)
			}
			return leaving
		})
		waittest.Until(t, "it is registered", func() bool { return registered(t, socket) })
		stop()
		if exists(socket) == leaving {
			t.Errorf("leaving: %v, and the socket is there: %v", leaving, exists(socket))
		}
	}
}

func TestARefusalIsNotFatal(t *testing.T) {
	server, socket, stop := start(t, t.TempDir())
	defer stop()
	kubelet(t, socket, &pluginregistration.RegistrationStatus{Error: "another driver has the name"})
	if err := server.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "another driver has the name") {
		t.Errorf("after a refusal: %v", err)
	}
	kubelet(t, socket, &pluginregistration.RegistrationStatus{PluginRegistered: true})
	if err := server.Check(t.Context()); err != nil {
		t.Errorf("after the kubelet tried again: %v", err)
	}
}

func TestComesBackWhenTheFileVanishes(t *testing.T) {
	_, socket, stop := start(t, t.TempDir())
	defer stop()
	for range 3 {
		kubelet(t, socket, &pluginregistration.RegistrationStatus{PluginRegistered: true})
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the socket is there", func() bool { return exists(socket) })
	}
	kubelet(t, socket, &pluginregistration.RegistrationStatus{PluginRegistered: true})
}

func TestTakesTheNameBack(t *testing.T) {
	server, socket, stop := start(t, t.TempDir())
	defer stop()
	kubelet(t, socket, &pluginregistration.RegistrationStatus{Error: "not yet"})
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	foreign, err := net.Listen("unix", socket)
	if err == nil { // else ours was faster: it listens again, which is what is tested
		defer func() { _ = foreign.Close() }()
		foreign.(*net.UnixListener).SetUnlinkOnClose(false)
	}
	waittest.Until(t, "it is registered again", func() bool {
		return registered(t, socket) && server.Check(t.Context()) == nil
	})
}

// registered registers if somebody answers within a moment.
func registered(t *testing.T, socket string) bool {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = pluginregistration.NewRegistrationClient(conn).NotifyRegistrationStatus(ctx,
		&pluginregistration.RegistrationStatus{PluginRegistered: true})
	return err == nil
}

func TestLeavesAnothersFile(t *testing.T) {
	directory := t.TempDir()
	server, err := registration.New(registration.Config{
		Directory: directory, DriverName: "hpp", CSISocket: "/csi.sock", Interval: time.Hour,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { server.Run(ctx); close(done) }()
	socket := filepath.Join(directory, "hpp-reg.sock")
	kubelet(t, socket, &pluginregistration.RegistrationStatus{PluginRegistered: true})
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	if !exists(socket) {
		t.Error("removed a file that is another's")
	}
}

func TestWaitsForTheDirectory(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "plugins_registry")
	server, socket, stop := start(t, directory)
	defer stop()
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	kubelet(t, socket, &pluginregistration.RegistrationStatus{PluginRegistered: true})
	if err := server.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
