package control_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pools struct {
	status []pool.Status
	forget func(name string) error
}

func (p *pools) Status() []pool.Status                       { return p.status }
func (p *pools) Forget(_ context.Context, name string) error { return p.forget(name) }

// serve runs a server and gives a client of it.
func serve(t *testing.T, p *pools, owner uint32) (client *control.Client, stateDir string) {
	t.Helper()
	stateDir = t.TempDir()
	server, err := control.New(control.Config{
		StateDir: stateDir, Owner: owner, Driver: "hpp", Node: "worker-1", Build: "0.1.0", Pools: p, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return control.NewClient(stateDir), stateDir
}

func me() uint32 { return uint32(os.Getuid()) }

func TestStatus(t *testing.T) {
	deleted := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	client, _ := serve(t, &pools{status: []pool.Status{
		{
			Name: "local", Path: "/pool", Present: true, Selected: true, ID: "id-1", Backend: "plain", Enforcement: "none", Inline: true,
			Size: 100 << 30, Free: 60 << 30, Available: 50 << 30, Promised: 1536, Volumes: 3, TrashEntries: 2, OldestTrash: deleted, Orphans: 1, Lost: 4, Refused: 5,
		},
		{Name: "wrong", Path: "/wrong", Present: true, ID: "id-4", Enforcement: "cooperative", CountsWrong: true, Reason: "QuotaInconsistent", Message: "counted again"},
		{Name: "away", Path: "/away", Selected: true, Reason: "MarkerMissing", Message: "mount it", ID: "id-2"},
		{Name: "other", Path: "/other", Reason: "NotSelected", Message: "labels"},
		{Name: "old", Path: "/old", Remembered: true, Reason: "NotConfigured", Message: "taken out", ID: "id-3"},
	}}, me())
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := control.Status{Driver: "hpp", Version: "0.1.0", Node: "worker-1", Pools: []control.Pool{
		{
			Name: "local", Path: "/pool", State: control.Present, Selected: true, ID: "id-1", Backend: "plain", Enforcement: "none", Inline: true,
			Size: 100 << 30, Free: 60 << 30, Available: 50 << 30, Promised: 1536, Volumes: 3, Trash: 2, OldestTrash: deleted, Orphans: 1, Lost: 4, Refused: 5,
		},
		{Name: "wrong", Path: "/wrong", State: control.Present, ID: "id-4", Enforcement: "cooperative", CountsWrong: true, Reason: "QuotaInconsistent", Message: "counted again"},
		{Name: "away", Path: "/away", State: control.Absent, Selected: true, Reason: "MarkerMissing", Message: "mount it", ID: "id-2"},
		{Name: "other", Path: "/other", State: control.NotSelected, Reason: "NotSelected", Message: "labels"},
		{Name: "old", Path: "/old", State: control.NotConfigured, Reason: "NotConfigured", Message: "taken out", ID: "id-3"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var table bytes.Buffer
	if err := control.WriteTable(&table, got); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"hpp 0.1.0 on node worker-1", "100.0Gi", "1.5Ki", "not configured", "away: MarkerMissing: mount it", "wrong: QuotaInconsistent: counted again"} {
		if !strings.Contains(table.String(), part) {
			t.Errorf("the table does not say %q:\n%s", part, table.String())
		}
	}
}

func TestForget(t *testing.T) {
	var asked string
	answer := error(nil)
	client, _ := serve(t, &pools{forget: func(name string) error { asked = name; return answer }}, me())
	for _, test := range []struct {
		answer error
		says   string
	}{
		{nil, ""},
		{fmt.Errorf("%w: no pool x", volume.ErrPoolUnknown), "no pool x"},
		{fmt.Errorf("%w: it is there", volume.ErrInvalid), "it is there"},
		{os.ErrPermission, "permission denied"},
	} {
		answer = test.answer
		err := client.Forget(t.Context(), "fast/../x")
		if asked != "fast/../x" {
			t.Errorf("asked for %q", asked)
		}
		switch {
		case test.answer == nil && err != nil:
			t.Errorf("got %v", err)
		case test.answer != nil && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("got %v, want %q in it", err, test.says)
		}
	}
}

func TestOnlyTheOwnerMayAsk(t *testing.T) {
	client, stateDir := serve(t, &pools{forget: func(string) error { t.Error("forgot a pool for a stranger"); return nil }}, me()+1)
	if err := client.Forget(t.Context(), "local"); err == nil || !strings.Contains(err.Error(), "only user id") {
		t.Errorf("Forget: %v", err)
	}
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "only user id") {
		t.Errorf("Status: %v", err)
	}
	info, err := os.Stat(filepath.Join(stateDir, control.SocketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v; want mode 0600", info, err)
	}
}

func TestNoDriver(t *testing.T) {
	_, err := control.NewClient(t.TempDir()).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("got %v", err)
	}
}
