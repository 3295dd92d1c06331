package control_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// domain stands in for pools and volumes; a call that the test did not expect panics.
type domain struct {
	status  []nodeapi.PoolStatus
	forget  func(name string) error
	take    func(name, from string) error
	volumes map[string]entry
	enforce func(ctx context.Context, id string, progress func(int64)) error
	inodes  *int64 // of the last enforcement
	adopt   func(id string, bytes int64) (store.Record, error)
	discard func(id, node string) error
	all     []nodeapi.VolumeStatus
}

// volumes has another Each than the pools.
type volumes struct{ *domain }

func (v volumes) Each(_ context.Context, visit func(nodeapi.VolumeStatus) error) error {
	for _, s := range v.all {
		if err := visit(s); err != nil {
			return err
		}
	}
	return nil
}

type entry struct {
	pool string
	ledger.Volume
}

func (d *domain) Status() []nodeapi.PoolStatus                { return d.status }
func (d *domain) Forget(_ context.Context, name string) error { return d.forget(name) }

func (d *domain) Take(_ context.Context, name, from string) error { return d.take(name, from) }

func (d *domain) Find(id string) (string, ledger.Volume, bool) {
	v, ok := d.volumes[id]
	return v.pool, v.Volume, ok
}

func (d *domain) Each(visit func(pool, id string, v ledger.Volume)) {
	for id, v := range d.volumes {
		visit(v.pool, id, v.Volume)
	}
}

func (d *domain) Enforce(ctx context.Context, id string, inodes *int64, progress func(files int64)) error {
	d.inodes = inodes
	return d.enforce(ctx, id, progress)
}

func (d *domain) Adopt(_ context.Context, id string, bytes int64) (store.Record, error) {
	return d.adopt(id, bytes)
}

func (d *domain) Discard(_ context.Context, id, node string) error { return d.discard(id, node) }

// serve runs a node's server and gives a client of it.
func serve(t *testing.T, d *domain, owner uint32) (client *control.Client, stateDir string) {
	t.Helper()
	return run(t, control.Config{
		Owner: owner, Node: "worker-1", TopologyKey: "topology/node", Pools: d, Volumes: volumes{d},
	})
}

func run(t *testing.T, c control.Config) (client *control.Client, stateDir string) {
	t.Helper()
	stateDir = t.TempDir()
	c.StateDir, c.Driver, c.Build, c.Log = stateDir, "hpp", "0.1.0", slog.New(slog.DiscardHandler)
	server, err := control.New(c)
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

// says fails unless an error has all parts; with none there must be no error.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	if (err == nil) != (len(parts) == 0) {
		t.Errorf("got %v, want %q in it", err, parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

func TestStatus(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	pools := []nodeapi.PoolStatus{
		{
			Name: "local", Path: "/pool", State: nodeapi.StatePresent, Selected: true, Used: true, ID: "id-1",
			Backend: "plain", Enforcement: "none", Inline: true, Size: 100 << 30, Free: 60 << 30, Allocatable: 50 << 30,
			Promised: 1536, Volumes: 3, TrashEntries: 2, OldestTrash: now, Lost: 4, Refused: 5, Untracked: 13,
			Seen: now.Add(-2 * time.Second),
		},
		{
			Name: "hangs", Path: "/hangs", State: nodeapi.StatePresent, Used: true, Enforcement: "cooperative",
			ReadOnly:  true,
			Uncounted: 7, Reason: "ReadOnly", Message: "its filesystem is read-only", Seen: now.Add(-90 * time.Second),
		},
		{
			Name: "away", Path: "/away", State: nodeapi.StateAbsent, Selected: true, Used: true,
			Reason:  "MarkerMissing",
			Message: "mount it", ID: "id-2",
		},
		{Name: "other", Path: "/other", State: nodeapi.StateNotSelected, Reason: "NotSelected", Message: "labels"},
		{
			Name: "old", Path: "/old", Used: true, State: nodeapi.StateNotConfigured, Reason: "NotConfigured",
			Message: "taken out", ID: "id-3",
			Size: 3 << 20, Volumes: 2,
		},
		{
			Name: "older", Path: "/older", State: nodeapi.StateAbsent, Used: true, Reason: "MarkerMissing",
			Message: "taken out", ID: "id-4",
		},
	}
	client, _ := serve(t, &domain{status: pools}, me())
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := control.Status{Driver: "hpp", Version: "0.1.0", Node: "worker-1", Pools: pools}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var table bytes.Buffer
	if err := control.WriteTable(&table, got, now); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(table.String(), "\n"); !slices.Equal(strings.Fields(lines[3]), []string{
		"local", "present", "2s", "ago", "plain", "none", "100Gi", "60Gi", "50Gi", "1.5Ki", "3", "2", "9", "0", "13",
		"/pool",
	}) || len(strings.Fields(lines[5])) != len(strings.Fields(lines[2])) {
		t.Errorf("the table:\n%s", table.String())
	}
	for _, part := range []string{
		"hpp 0.1.0 on node worker-1", "100Gi", "1.5Ki", "not configured", "2s ago", "90s ago", "present, read-only",
		"never", "3Mi",
		"away: MarkerMissing: mount it", "hangs: ReadOnly: its filesystem is read-only",
	} {
		if !strings.Contains(table.String(), part) {
			t.Errorf("the table does not say %q:\n%s", part, table.String())
		}
	}
}

func TestTake(t *testing.T) {
	var asked []string
	client, _ := serve(t, &domain{take: func(name, from string) error {
		if asked = []string{name, from}; from == "wrong" {
			return fmt.Errorf("%w: it belongs to right", pool.ErrOtherCluster)
		}
		return nil
	}}, me())
	if err := client.Take(t.Context(), "nfs/x", "right"); err != nil ||
		!slices.Equal(asked, []string{"nfs/x", "right"}) {
		t.Errorf("asked %q: %v", asked, err)
	}
	if err := client.Take(t.Context(), "nfs", "wrong"); err == nil ||
		!strings.Contains(err.Error(), "belongs to right") {
		t.Errorf("with the wrong cluster: %v", err)
	}
}

func TestForget(t *testing.T) {
	var asked string
	answer := error(nil)
	client, _ := serve(t, &domain{
		status: []nodeapi.PoolStatus{{Name: "fast/../x", Used: true}, {Name: "slow"}},
		forget: func(name string) error { asked = name; return answer },
	}, me())
	for _, test := range []struct {
		name   string
		answer error
		known  bool
		says   []string
	}{
		{"fast/../x", nil, true, nil},
		{"slow", nil, false, nil},
		{"tape", nil, false, nil},
		{"fast/../x", fmt.Errorf("%w: no pool x", pool.ErrUnknown), false, []string{"refused", "no pool x"}},
		{"slow", fmt.Errorf("%w: it is there", pool.ErrPresent), false, []string{"refused", "it is there"}},
		{"slow", os.ErrPermission, false, []string{"permission denied"}},
	} {
		answer = test.answer
		known, err := client.Forget(t.Context(), test.name)
		if asked != test.name || known != test.known {
			t.Errorf("asked for %q, known: %v; want %q, %v", asked, known, test.name, test.known)
		}
		says(t, err, test.says...)
	}
}

// enforced runs a command to its end and gives what it shows.
func enforced(t *testing.T, c *control.Client, s control.Selection) (lines []control.Progress, err error) {
	t.Helper()
	err = c.Enforce(t.Context(), s, func(p control.Progress) { lines = append(lines, p) })
	return lines, err
}

func TestEnforce(t *testing.T) {
	uncounted := ledger.Volume{QuotaID: 7}
	client, _ := serve(t, &domain{
		status: []nodeapi.PoolStatus{
			{Name: "local", State: nodeapi.StatePresent},
			{Name: "fine", State: nodeapi.StatePresent},
			{Name: "away", Message: "mount it"},
		},
		volumes: map[string]entry{
			"a": {"local", uncounted}, "b": {"local", uncounted}, "c": {"local", uncounted},
			"counted": {"local", ledger.Volume{QuotaID: 8, Counted: true}}, "adopted": {"local", ledger.Volume{}},
			"other": {"fine", ledger.Volume{QuotaID: 7, Counted: true}},
		},
		enforce: func(_ context.Context, id string, progress func(int64)) error {
			progress(10)
			if id == "b" {
				return fmt.Errorf("%w: b is mounted", volume.ErrPublished)
			}
			progress(20)
			return nil
		},
	}, me())
	done := func(id string) []control.Progress {
		return []control.Progress{{ID: id, Files: 10}, {ID: id, Files: 20}, {ID: id, Files: 20, Done: true}}
	}
	refused := []control.Progress{{ID: "b", Files: 10}, {
		ID: "b", Files: 10,
		Error: "volume is published: b is mounted",
	}}
	elsewhere := []control.Progress{{ID: "other", Error: "invalid request: volume other is in pool fine, not in local"}}
	for name, test := range map[string]struct {
		asked control.Selection
		want  []control.Progress
		says  []string
	}{
		"a pool": {control.Selection{Pool: "local"}, slices.Concat(done("a"), refused, done("c")), nil},
		"ids": {
			control.Selection{IDs: []string{"c", "b", "a", "c"}},
			slices.Concat(done("c"), refused, done("a")), nil,
		},
		"ids of a pool": {
			control.Selection{Pool: "local", IDs: []string{"other", "a"}},
			slices.Concat(elsewhere, done("a")), nil,
		},
		"nothing to do":         {control.Selection{Pool: "fine"}, nil, nil},
		"a pool nobody knows":   {control.Selection{Pool: "lokal"}, nil, []string{"refused", "lokal"}},
		"a pool that is absent": {control.Selection{Pool: "away"}, nil, []string{"refused", "away", "mount it"}},
	} {
		got, err := enforced(t, client, test.asked)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		says(t, err, test.says...)
	}
}

// TestInodes: none at all is another request than none.
func TestInodes(t *testing.T) {
	d := &domain{enforce: func(context.Context, string, func(int64)) error { return nil }}
	client, _ := serve(t, d, me())
	zero, some := int64(0), int64(7)
	for _, want := range []*int64{nil, &zero, &some} {
		_, err := enforced(t, client, control.Selection{IDs: []string{"a"}, Inodes: want})
		if diff := cmp.Diff(want, d.inodes); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
	}
}

// TestEnforceEndsWithItsClient: an admin's Ctrl-C ends the work on the disk.
func TestEnforceEndsWithItsClient(t *testing.T) {
	ended := make(chan string, 2)
	client, _ := serve(t, &domain{enforce: func(ctx context.Context, id string, progress func(int64)) error {
		progress(1)
		<-ctx.Done()
		ended <- id
		return ctx.Err()
	}}, me())
	ctx, cancel := context.WithCancel(t.Context())
	err := client.Enforce(ctx, control.Selection{IDs: []string{"a", "b"}}, func(control.Progress) { cancel() })
	says(t, err, "ended early", "run the command again")
	if id := <-ended; id != "a" {
		t.Errorf("worked on %s", id)
	}
	select {
	case id := <-ended:
		t.Errorf("went on with %s", id)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestAdopt(t *testing.T) {
	record := store.Record{
		ID: "pvc-1", Pool: "local", Bytes: 10 << 30, Claim: nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"},
	}
	shared := []nodeapi.PoolStatus{{Name: "local"}, {Name: "everybodys", Shared: true}}
	client, _ := serve(t, &domain{status: shared, adopt: func(id string, bytes int64) (store.Record, error) {
		switch {
		case id == "named":
			return store.Record{}, fmt.Errorf("%w: pvc-1", nodeapi.ErrNamed)
		case bytes != 5:
			t.Errorf("adopted with %d bytes", bytes)
		}
		return record, nil
	}}, me())
	got, err := client.Adopt(t.Context(), "pvc-1", control.Adoption{Bytes: 5, StorageClass: "local"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: v1
kind: PersistentVolume
metadata:
  annotations:
    pv.kubernetes.io/provisioned-by: hpp
  name: pvc-1
spec:
  accessModes:
  - ReadWriteOnce
  capacity:
    storage: 10Gi
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    name: data
    namespace: shop
  csi:
    driver: hpp
    volumeAttributes:
      storagePool: local
    volumeHandle: pvc-1
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - key: topology/node
          operator: In
          values:
          - worker-1
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	record.Claim = nodeapi.Claim{}
	if got, err := client.Adopt(t.Context(), "pvc-1", control.Adoption{Bytes: 5}); err != nil ||
		strings.Contains(string(got), "claimRef") {
		t.Errorf("of no claim: %s, %v", got, err)
	}
	record.Pool = "everybodys"
	if got, err := client.Adopt(t.Context(), "pvc-1", control.Adoption{Bytes: 5}); err != nil ||
		strings.Contains(string(got), "nodeAffinity") {
		t.Errorf("in a shared pool: %s, %v", got, err)
	}
	_, err = client.Adopt(t.Context(), "named", control.Adoption{})
	says(t, err, "refused", "a PersistentVolume names the volume")
}

func TestDiscard(t *testing.T) {
	answer := error(nil)
	client, _ := serve(t, &domain{discard: func(id, node string) error {
		if id != "pvc-1" || node != "worker-2" {
			t.Errorf("discard %q, %q", id, node)
		}
		return answer
	}}, me())
	says(t, client.Discard(t.Context(), "pvc-1", "worker-2"))
	for _, refusal := range []error{
		store.ErrNotFound, volume.ErrPublished, nodeapi.ErrNamed, nodeapi.ErrClusterUnknown, pool.ErrAbsent,
	} {
		answer = fmt.Errorf("%w: because", refusal)
		says(t, client.Discard(t.Context(), "pvc-1", "worker-2"), "refused", refusal.Error(), "because")
	}
}

// TestHTTPCodes: what is unknown is told from what is refused.
func TestHTTPCodes(t *testing.T) {
	answer := error(nil)
	_, stateDir := serve(t, &domain{discard: func(string, string) error { return answer }}, me())
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(stateDir, control.SocketName))
		},
	}}
	for _, test := range []struct {
		answer error
		body   string
		want   int
	}{
		{nil, "{}", http.StatusNoContent},
		{nil, "", http.StatusBadRequest},
		{nil, `{"pvOnn": "x"}`, http.StatusBadRequest},
		{nodeapi.ErrInvalidID, "{}", http.StatusBadRequest},
		{store.ErrNotFound, "{}", http.StatusNotFound},
		{volume.ErrPublished, "{}", http.StatusConflict},
		{nodeapi.ErrClusterUnknown, "{}", http.StatusServiceUnavailable},
		{os.ErrPermission, "{}", http.StatusInternalServerError},
	} {
		answer = test.answer
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://driver/v1/volumes/a/discard",
			strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%v, %q: %s, want %d", test.answer, test.body, response.Status, test.want)
		}
	}
}

func TestOnlyTheOwnerMayAsk(t *testing.T) {
	client, stateDir := serve(t, &domain{}, me()+1)
	_, err := client.Forget(t.Context(), "local")
	says(t, err, "only user id")
	_, err = client.Status(t.Context())
	says(t, err, "only user id")
	_, err = enforced(t, client, control.Selection{Pool: "local"})
	says(t, err, "only user id")
	info, err := os.Stat(filepath.Join(stateDir, control.SocketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v; want mode 0600", info, err)
	}
}

func TestNoDriver(t *testing.T) {
	_, err := control.NewClient(t.TempDir()).Status(t.Context())
	says(t, err, "is it running")
}
