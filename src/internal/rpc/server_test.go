package rpc_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// services answers with functions of the test; a call without one panics, as a bug would.
type services struct {
	pb.UnimplementedControllerServer
	create   func(context.Context) error
	capacity func(context.Context) error
}

func (s *services) Register(r grpc.ServiceRegistrar) { pb.RegisterControllerServer(r, s) }

func (s *services) CreateVolume(ctx context.Context, _ *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	return &pb.CreateVolumeResponse{}, s.create(ctx)
}

func (s *services) GetCapacity(ctx context.Context, _ *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	return &pb.GetCapacityResponse{}, s.capacity(ctx)
}

// records are the log's records of one message.
func (r running) records(t *testing.T, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["msg"] == message {
			found = append(found, record)
		}
	}
	return found
}

type running struct {
	client   pb.ControllerClient
	socket   string
	log      *loggingtest.Log
	registry *prometheus.Registry
	// stop ends the server and waits for it.
	stop func() error
}

func start(t *testing.T, s *services, level slog.Level, grace time.Duration) running {
	t.Helper()
	r := running{
		socket: filepath.Join(t.TempDir(), "plugin", "csi.sock"), log: &loggingtest.Log{},
		registry: prometheus.NewRegistry(),
	}
	log := slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: level}))
	calls, err := rpc.NewCalls(r.registry, log, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.New(rpc.Config{
		Endpoint: "unix://" + r.socket, Services: s, Calls: calls, Grace: grace, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r.client = pb.NewControllerClient(conn)
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		_ = r.stop()
		_ = conn.Close()
	})
	return r
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneRecordPerCall(t *testing.T) {
	r := start(t, &services{
		create:   func(context.Context) error { return status.Error(codes.ResourceExhausted, "no room") },
		capacity: func(context.Context) error { return nil },
	}, slog.LevelInfo, time.Minute)
	_, _ = r.client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name:    "pvc-1",
		Secrets: map[string]string{"key": "hush"},
	})
	if _, err := r.client.GetCapacity(t.Context(), &pb.GetCapacityRequest{}); err != nil {
		t.Fatal(err)
	}
	records := r.records(t, "answered a call")
	if len(records) != 1 {
		t.Fatalf("%d records, want one for CreateVolume and none for GetCapacity: %v", len(records), records)
	}
	for key, want := range map[string]string{
		"method": "CreateVolume", "code": "ResourceExhausted", "id": "pvc-1",
		"error": "no room", "level": "WARN",
	} {
		if records[0][key] != want {
			t.Errorf("%s is %v, want %q", key, records[0][key], want)
		}
	}
	if _, ok := records[0]["duration"]; !ok {
		t.Error("no duration")
	}
	if _, ok := records[0]["request"]; ok {
		t.Error("the request is logged although debug is off")
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	r := start(t, &services{create: func(context.Context) error { return nil }}, slog.LevelDebug, time.Minute)
	if _, err := r.client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name:    "pvc-1",
		Secrets: map[string]string{"key": "hush"},
	}); err != nil {
		t.Fatal(err)
	}
	records := r.records(t, "answered a call")
	if len(records) != 1 {
		t.Fatalf("records: %v", records)
	}
	request, _ := records[0]["request"].(string)
	if !strings.Contains(request, "pvc-1") || strings.Contains(request, "hush") {
		t.Errorf("request logged as %s", request)
	}
}

func TestAPanicIsAnError(t *testing.T) {
	r := start(t, &services{
		create:   func(context.Context) error { panic("no such luck") },
		capacity: func(context.Context) error { return nil },
	}, slog.LevelInfo, time.Minute)
	_, err := r.client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "pvc-1"})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "no such luck") {
		t.Errorf("got %v, want Internal without the panic's words", err)
	}
	if records := r.records(t, "a call panicked"); len(records) != 1 || records[0]["panic"] != "no such luck" ||
		!strings.Contains(records[0]["stack"].(string), "server_test.go") {
		t.Errorf("logged: %v", records)
	}
	if records := r.records(t, "answered a call"); len(records) != 1 || records[0]["code"] != "Internal" ||
		records[0]["level"] != "ERROR" {
		t.Errorf("logged: %v", records)
	}
	if _, err := r.client.GetCapacity(t.Context(), &pb.GetCapacityRequest{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// callsIn is how many calls a metric, a counter or a histogram, holds for each method and code that were called.
func (r running) callsIn(t *testing.T, name string) map[string]uint64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			// Of a counter and a histogram, a metric is one; the other counts 0.
			if n := uint64(metric.GetCounter().GetValue()) + metric.GetHistogram().GetSampleCount(); n > 0 {
				calls[labels["grpc_method"]+" "+labels["grpc_code"]] += n
			}
		}
	}
	return calls
}

func TestMetricsTellMethodAndCode(t *testing.T) {
	results := []error{nil, nil, status.Error(codes.ResourceExhausted, "no room"), context.DeadlineExceeded}
	r := start(t, &services{
		create: func(context.Context) error {
			if len(results) == 0 {
				panic("x")
			}
			result := results[0]
			results = results[1:]
			return result
		},
		capacity: func(context.Context) error { return nil },
	}, slog.LevelError, time.Minute)
	for range 5 {
		_, _ = r.client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{})
	}
	_, _ = r.client.GetCapacity(t.Context(), &pb.GetCapacityRequest{})
	want := map[string]uint64{
		"CreateVolume OK": 2, "CreateVolume ResourceExhausted": 1, "CreateVolume DeadlineExceeded": 1,
		"CreateVolume Internal": 1,
		"GetCapacity OK":        1,
	}
	for _, name := range []string{"grpc_server_handled_total", "hpp_grpc_handling_seconds"} {
		if diff := cmp.Diff(want, r.callsIn(t, name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// One histogram is enough; that of the middleware knows no code.
	if calls := r.callsIn(t, "grpc_server_handling_seconds"); len(calls) > 0 {
		t.Errorf("grpc_server_handling_seconds is there as well: %v", calls)
	}
}

func TestCallsGetADeadline(t *testing.T) {
	var own, given time.Time
	r := start(t, &services{
		create:   func(ctx context.Context) error { own, _ = ctx.Deadline(); return nil },
		capacity: func(ctx context.Context) error { given, _ = ctx.Deadline(); return nil },
	}, slog.LevelError, time.Minute)
	if _, err := r.client.CreateVolume(t.Context(), &pb.CreateVolumeRequest{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(24 * time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	if _, err := r.client.GetCapacity(ctx, &pb.GetCapacityRequest{}); err != nil {
		t.Fatal(err)
	}
	if own.IsZero() {
		t.Error("a call without a deadline got none")
	}
	if given.Before(own) {
		t.Errorf("the client's deadline %s was cut to %s", deadline, given)
	}
}

func TestStopLetsCallsEnd(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	r := start(t, &services{create: func(context.Context) error { close(entered); <-leave; return nil }},
		slog.LevelError,
		time.Minute)
	answer := make(chan error, 1)
	go func() {
		_, err := r.client.CreateVolume(context.WithoutCancel(t.Context()), &pb.CreateVolumeRequest{})
		answer <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	waittest.Until(t, "the socket file goes", func() bool { // first, and the call under way stays
		_, err := os.Stat(r.socket)
		return err != nil
	})
	close(leave)
	if err := <-answer; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStopCutsOffWhatHangs(t *testing.T) {
	entered := make(chan struct{})
	r := start(t, &services{create: func(ctx context.Context) error { close(entered); <-ctx.Done(); return ctx.Err() }},
		slog.LevelError, time.Millisecond)
	answer := make(chan error, 1)
	go func() {
		_, err := r.client.CreateVolume(context.WithoutCancel(t.Context()), &pb.CreateVolumeRequest{})
		answer <- err
	}()
	<-entered
	if err := r.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := <-answer; err == nil {
		t.Error("the call that hung was answered")
	}
}

func TestListen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listen := func() (net.Listener, error) {
		calls, err := rpc.NewCalls(prometheus.NewRegistry(), slog.New(slog.DiscardHandler), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		server, err := rpc.New(rpc.Config{
			Endpoint: "unix://" + socket, Services: &services{}, Calls: calls, Grace: time.Hour,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return server.Listen(t.Context())
	}
	first, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "another process listens on "+socket) {
		t.Errorf("while the first listens: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as if killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := listen()
	if err != nil {
		t.Fatalf("over the socket of a dead process: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("over a file: %v", err)
	}
	if data, err := os.ReadFile(socket); err != nil || string(data) != "precious" {
		t.Errorf("the file now holds %q, %v", data, err)
	}
}

func TestSocketPath(t *testing.T) {
	if got, err := rpc.SocketPath("unix:///csi/csi.sock"); err != nil || got != "/csi/csi.sock" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, endpoint := range []string{"", "/csi/csi.sock", "unix://csi.sock", "tcp://127.0.0.1:5", "unix:csi.sock"} {
		if _, err := rpc.SocketPath(endpoint); err == nil {
			t.Errorf("%q is accepted", endpoint)
		}
	}
}
