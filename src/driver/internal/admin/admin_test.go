package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	nodeadmin "github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
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
	measure func(id string, progress func(files, bytes int64)) error
	adopt   func(id string, bytes int64) (store.Record, error)
	discard func(id, node string) error
	keep    time.Duration // of the last discard
	moving  volume.Moving
	all     []nodeapi.VolumeStatus

	undelete func(entry string) (store.Record, error)
	deleted  []nodeapi.DeletedVolume
	listing  error
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

func (d *domain) Measure(_ context.Context, id string, progress func(files, bytes int64)) error {
	return d.measure(id, progress)
}

func (d *domain) Adopt(_ context.Context, id string, bytes int64) (store.Record, error) {
	return d.adopt(id, bytes)
}

func (d *domain) LookDirectory(_ context.Context, pool, path string) (nodeapi.Directory, error) {
	return nodeapi.Directory{Pool: pool, Path: path, Exists: true, Files: 3, Bytes: 10 << 20, FSType: "xfs"}, nil
}

func (d *domain) TakeDirectory(_ context.Context, s volume.TakeSpec) (nodeapi.TakenDirectory, error) {
	if s.Group == nil || *s.Group != 7 || s.Claim.Name != "data" {
		return nodeapi.TakenDirectory{}, fmt.Errorf("%w: %+v", volume.ErrInvalid, s)
	}
	return nodeapi.TakenDirectory{ID: s.ID, Pool: s.Pool, Path: s.Path, Bytes: s.Bytes, Enforcing: true, Files: 2}, nil
}

func (d *domain) ReturnDirectory(_ context.Context, id string) (nodeapi.ReturnedDirectory, error) {
	return nodeapi.ReturnedDirectory{ID: id, Path: "/old/" + id, Done: id != "pvc-2", Files: 2}, nil
}

func (d *domain) Discard(_ context.Context, id, node string, keep time.Duration) error {
	d.keep = keep
	return d.discard(id, node)
}

func (d *domain) Moving(context.Context, string) (volume.Moving, error) { return d.moving, nil }

func (d *domain) Leave(
	_ context.Context, _ string, move store.Leaving, _ bool,
) (v volume.Moving, before bool, err error) {
	before = d.moving.Leaving != nil
	v = d.moving
	d.moving.Leaving = &move
	return v, before, nil
}

func (d *domain) Stay(context.Context, string) error {
	d.moving.Leaving = nil
	return nil
}

func (d *domain) Undelete(_ context.Context, entry string) (store.Record, error) {
	return d.undelete(entry)
}

func (d *domain) EachDeleted(_ context.Context, visit func(nodeapi.DeletedVolume) error) error {
	for _, v := range d.deleted {
		if err := visit(v); err != nil {
			return err
		}
	}
	return d.listing
}

// node is a node's service on a socket, and a client of it.
type node struct {
	wire.AdminClient
	stateDir string
}

func serve(t *testing.T, d *domain) node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	services, err := nodeadmin.New(nodeadmin.Config{
		Driver: "hpp", Version: "0.1.0", Node: "worker-1", TopologyKey: "topology/node", Pools: d, Volumes: volumes{d},
		Mover: d, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	calls, err := rpc.NewCalls(prometheus.NewRegistry(), log, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	stateDir := t.TempDir()
	server, err := rpc.New(rpc.Config{
		Endpoint: admin.Endpoint(stateDir), Services: services, Calls: calls, Log: log, Grace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(admin.Endpoint(stateDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(conn.Close(), <-done); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return node{wire.NewAdminClient(conn), stateDir}
}

// command runs one of the driver's commands.
func (n node) command(t *testing.T, args ...string) (printed string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(admin.Commands(&n.stateDir)...)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

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
	client := serve(t, &domain{status: pools})
	printed, err := client.command(t, "status", "--output", "json")
	var got nodeapi.Status
	if err == nil {
		err = json.Unmarshal([]byte(printed), &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := nodeapi.Status{Driver: "hpp", Version: "0.1.0", Node: "worker-1", Pools: pools}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var table bytes.Buffer
	if err := admin.WriteTable(&table, got, now); err != nil {
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
		"hangs: its filesystem has not answered since it was seen, 90s ago: see docs/runbooks/HostpathPoolHangs.md",
		"away: MarkerMissing: mount it", "hangs: ReadOnly: its filesystem is read-only",
	} {
		if !strings.Contains(table.String(), part) {
			t.Errorf("the table does not say %q:\n%s", part, table.String())
		}
	}
}

func TestTake(t *testing.T) {
	var asked []string
	client := serve(t, &domain{take: func(name, from string) error {
		if asked = []string{name, from}; from == "wrong" {
			return fmt.Errorf("%w: it belongs to right", pool.ErrOtherCluster)
		}
		return nil
	}})
	printed, err := client.command(t, "pool", "take", "nfs/x", "--from", "right")
	if err != nil || !slices.Equal(asked, []string{"nfs/x", "right"}) || !strings.Contains(printed, "this cluster's") {
		t.Errorf("asked %q: %q, %v", asked, printed, err)
	}
	_, err = client.command(t, "pool", "take", "nfs", "--from", "wrong")
	says(t, err, "refused", "belongs to right")
}

func TestForget(t *testing.T) {
	var asked string
	answer := error(nil)
	client := serve(t, &domain{
		status: []nodeapi.PoolStatus{{Name: "fast/../x", Used: true}, {Name: "slow"}},
		forget: func(name string) error { asked = name; return answer },
	})
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
		printed, err := client.command(t, "pool", "forget", test.name)
		if known := strings.Contains(printed, "is forgotten"); asked != test.name || known != test.known {
			t.Errorf("asked for %q, known: %v; want %q, %v", asked, known, test.name, test.known)
		}
		says(t, err, test.says...)
	}
}

// enforced asks for sizes to be enforced, and gives what was told of that.
func enforced(t *testing.T, n node, q *wire.EnforceRequest) (steps []*wire.Progress, err error) {
	t.Helper()
	err = admin.Enforce(t.Context(), n.stateDir, q, func(p *wire.Progress) { steps = append(steps, p) })
	return steps, err
}

func TestEnforce(t *testing.T) {
	uncounted := ledger.Volume{QuotaID: 7}
	client := serve(t, &domain{
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
	})
	done := func(id string) []*wire.Progress {
		return []*wire.Progress{{Id: id, Files: 10}, {Id: id, Files: 20}, {Id: id, Files: 20, Done: true}}
	}
	refused := []*wire.Progress{{Id: "b", Files: 10}, {
		Id: "b", Files: 10,
		Error: "volume is published: b is mounted",
	}}
	elsewhere := []*wire.Progress{{Id: "other", Error: "invalid request: volume other is in pool fine, not in local"}}
	for name, test := range map[string]struct {
		asked *wire.EnforceRequest
		want  []*wire.Progress
		says  []string
	}{
		"a pool": {&wire.EnforceRequest{Pool: "local"}, slices.Concat(done("a"), refused, done("c")), nil},
		"ids": {
			&wire.EnforceRequest{Ids: []string{"c", "b", "a", "c"}},
			slices.Concat(done("c"), refused, done("a")), nil,
		},
		"ids of a pool": {
			&wire.EnforceRequest{Pool: "local", Ids: []string{"other", "a"}},
			slices.Concat(elsewhere, done("a")), nil,
		},
		"nothing to do":         {&wire.EnforceRequest{Pool: "fine"}, nil, nil},
		"a pool nobody knows":   {&wire.EnforceRequest{Pool: "lokal"}, nil, []string{"refused", "lokal"}},
		"a pool that is absent": {&wire.EnforceRequest{Pool: "away"}, nil, []string{"refused", "away", "mount it"}},
	} {
		got, err := enforced(t, client, test.asked)
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		says(t, err, test.says...)
	}
}

// TestInodes: none at all is another request than none.
func TestInodes(t *testing.T) {
	d := &domain{enforce: func(context.Context, string, func(int64)) error { return nil }}
	client := serve(t, d)
	for arguments, want := range map[string]*int64{"": nil, " --inodes 0": new(int64), " --inodes 7": new(int64(7))} {
		_, err := client.command(t, strings.Fields("volume enforce a"+arguments)...)
		if diff := cmp.Diff(want, d.inodes); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
	}
}

// asVolume is the PersistentVolume of pvc-1, as the commands print it.
const asVolume = `apiVersion: v1
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

// TestEnforceEndsWithItsClient: an admin's Ctrl-C ends the work on the disk.
func TestEnforceEndsWithItsClient(t *testing.T) {
	ended := make(chan string, 2)
	client := serve(t, &domain{enforce: func(ctx context.Context, id string, progress func(int64)) error {
		progress(1)
		<-ctx.Done()
		ended <- id
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	both := &wire.EnforceRequest{Ids: []string{"a", "b"}}
	err := admin.Enforce(ctx, client.stateDir, both, func(*wire.Progress) { cancel() })
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
	client := serve(t, &domain{status: shared, adopt: func(id string, bytes int64) (store.Record, error) {
		switch {
		case id == "named":
			return store.Record{}, fmt.Errorf("%w: pvc-1", nodeapi.ErrNamed)
		case bytes != 5:
			t.Errorf("adopted with %d bytes", bytes)
		}
		return record, nil
	}})
	got, err := client.command(t, "volume", "adopt", "pvc-1", "--size", "5", "--storage-class", "local")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asVolume+asClaim, got); diff != "" {
		t.Error(diff)
	}
	record.Claim = nodeapi.Claim{}
	if got, err := client.command(t, "volume", "adopt", "pvc-1", "--size", "5"); err != nil ||
		strings.Contains(got, "claimRef") {
		t.Errorf("of no claim: %s, %v", got, err)
	}
	record.Pool = "everybodys"
	if got, err := client.command(t, "volume", "adopt", "pvc-1", "--size", "5"); err != nil ||
		strings.Contains(got, "nodeAffinity") {
		t.Errorf("in a shared pool: %s, %v", got, err)
	}
	for _, size := range []string{"0", "-1", "much"} {
		_, err := client.command(t, "volume", "adopt", "pvc-1", "--size="+size)
		says(t, err, "--size", size)
	}
	_, err = client.command(t, "volume", "adopt", "named")
	says(t, err, "refused", "a PersistentVolume names the volume")
}

func TestDiscard(t *testing.T) {
	answer := error(nil)
	client := serve(t, &domain{discard: func(id, node string) error {
		if id != "pvc-1" || node != "worker-2" {
			t.Errorf("discard %q, %q", id, node)
		}
		return answer
	}})
	discard := func() error {
		_, err := client.command(t, "volume", "discard", "pvc-1", "--pv-on", "worker-2")
		return err
	}
	says(t, discard())
	for _, refusal := range []error{
		store.ErrNotFound, volume.ErrPublished, nodeapi.ErrNamed, nodeapi.ErrClusterUnknown, pool.ErrAbsent,
	} {
		answer = fmt.Errorf("%w: because", refusal)
		says(t, discard(), "refused", refusal.Error(), "because")
	}
}

// TestMoving: a volume whose directory is gone is lost, which a copy that is not whole yet is not.
func TestMoving(t *testing.T) {
	for name, test := range map[string]struct {
		source        *store.Source
		placed        bool
		filling, lost bool
	}{
		"there":      {placed: true},
		"lost":       {lost: true},
		"being made": {source: &store.Source{ByFile: true}, filling: true},
	} {
		moving := volume.Moving{Record: store.Record{ID: "pvc-1", Source: test.source}, Placed: test.placed}
		v, err := serve(t, &domain{moving: moving}).Moving(t.Context(), &wire.MovingRequest{Id: "pvc-1"})
		if err != nil || v.GetFilling() != test.filling || v.GetLost() != test.lost {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

// TestCodes: what is unknown is told from what is refused, as CSI's answers are.
func TestCodes(t *testing.T) {
	answer := error(nil)
	client := serve(t, &domain{discard: func(string, string) error { return answer }})
	for _, test := range []struct {
		answer error
		node   string
		want   codes.Code
	}{
		{nil, "", codes.OK},
		{nil, "worker-1", codes.OK},
		{nil, "worker-2", codes.InvalidArgument},
		{nodeapi.ErrInvalidID, "", codes.InvalidArgument},
		{store.ErrNotFound, "", codes.NotFound},
		{volume.ErrPublished, "", codes.FailedPrecondition},
		{nodeapi.ErrClusterUnknown, "", codes.Unavailable},
		{os.ErrPermission, "", codes.Internal},
	} {
		answer = test.answer
		_, err := client.Discard(t.Context(), &wire.DiscardRequest{Id: "a", Node: test.node})
		if status.Code(err) != test.want {
			t.Errorf("%v on %q: %v, want %s", test.answer, test.node, err, test.want)
		}
	}
}

// TestAnotherNode: nothing that is asked of another node is done here.
func TestAnotherNode(t *testing.T) {
	client := serve(t, &domain{}) // which panics if it is asked
	for _, command := range []string{
		"pool forget local", "pool take local --from x", "volume adopt a", "volume discard a", "volume enforce a",
		"volume undelete a.1",
	} {
		_, err := client.command(t, strings.Fields(command+" --node worker-2")...)
		says(t, err, "refused", "this is worker-1, not worker-2")
	}
}

func TestVolumesOfANode(t *testing.T) {
	d := &domain{all: []nodeapi.VolumeStatus{
		{ID: "pvc-1", Pool: "local", Bytes: 1 << 30, Claim: "shop/data", Enforcement: "strict", Used: 5},
		{ID: "csi-2", Pool: "local", Ephemeral: true, Enforcement: "none", Used: -1},
	}}
	client := serve(t, d)
	got, err := admin.Volumes(t.Context(), client.stateDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]nodeapi.VolumeStatus{
		{
			ID: "csi-2", Node: "worker-1", Pool: "local", Used: -1, Enforcement: "none", State: "inline",
			Ephemeral: true,
		},
		{
			ID: "pvc-1", Node: "worker-1", Pool: "local", Claim: "shop/data", Bytes: 1 << 30, Used: 5,
			Enforcement: "strict",
		},
	}, got, cmpopts.IgnoreFields(nodeapi.VolumeStatus{}, "Created")); diff != "" {
		t.Error(diff)
	}
}

func TestConfig(t *testing.T) {
	d := &domain{}
	good := nodeadmin.Config{
		Driver: "hpp", Version: "0.1.0", Log: slog.New(slog.DiscardHandler), Node: "worker-1", TopologyKey: "a/b",
		Pools: d, Volumes: volumes{d}, Mover: d,
	}
	nameless := good
	nameless.Node = ""
	for name, test := range map[string]struct {
		config nodeadmin.Config
		good   bool
	}{"all": {good, true}, "no name": {nameless, false}, "nothing": {nodeadmin.Config{}, false}} {
		if _, err := nodeadmin.New(test.config); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
