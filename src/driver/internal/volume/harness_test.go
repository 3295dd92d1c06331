package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	poolPath  = "/pool"
	statePath = "/state"
	target    = "/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"
	second    = "/kubelet/pods/2/volumes/kubernetes.io~csi/pvc-1/mount"
	mebibyte  = 1 << 20
)

// node is the real manager and pools over an in-memory disk or a real one: only the operating system's edge is not
// real.
type node struct {
	*volume.Manager
	set     *pool.Set
	disk    *disktest.Disk // nil on a real one
	host    disk.Host
	specs   []poolspec.Pool
	mounts  *mounts
	cluster *cluster
	clock   *clock
}

// option changes how a node is started.
type option func(*setup)

type setup struct {
	node
	name  string
	state disk.FS
	log   *slog.Logger
	rate  int64 // of copies, in bytes per second
}

func withPools(specs ...poolspec.Pool) option { return func(s *setup) { s.specs = specs } }
func withCluster(c *cluster) option           { return func(s *setup) { s.cluster = c } }
func withMounts(m *mounts) option             { return func(s *setup) { s.mounts = m } }
func withHost(h disk.Host) option             { return func(s *setup) { s.host = h } }
func withRate(bytes int64) option             { return func(s *setup) { s.rate = bytes } }

// retained is a pool whose trash is kept for an hour, so that tests see what is in it.
func retained(name, path string) poolspec.Pool {
	return poolspec.Pool{
		Name: name, Path: path, Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto, Inline: true,
		Trash: poolspec.Trash{Retention: poolspec.Duration(time.Hour)},
	}
}

// start starts a driver's domain on a disk, as after a boot of the process.
func start(t testing.TB, d *disktest.Disk, options ...option) *node {
	t.Helper()
	n, err := tryStart(d, options...)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return n
}

func tryStart(d *disktest.Disk, options ...option) (*node, error) {
	state, err := d.OpenDir(statePath)
	if err != nil {
		return nil, err
	}
	s := setup{node: node{disk: d, host: d, specs: []poolspec.Pool{retained("local", poolPath)}}, state: state}
	return s.start(options...)
}

// startAt starts a driver's domain on the real filesystem below root, with its pool in root/pool.
func startAt(t testing.TB, root string, options ...option) *node {
	t.Helper()
	stateDir := filepath.Join(root, "state")
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	state, err := disk.OpenDir(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	specs := []poolspec.Pool{retained("local", filepath.Join(root, "pool"))}
	s := setup{node: node{host: disk.NewHost("/"), specs: specs}, state: state}
	n, err := s.start(options...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s setup) start(options ...option) (*node, error) {
	s.name, s.mounts, s.cluster = "this", newMounts(), &cluster{}
	s.clock = &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	s.log = slog.New(slog.DiscardHandler)
	for _, o := range options {
		o(&s)
	}
	n := s.node
	var err error
	n.set, err = pool.New(pool.Config{
		Specs: n.specs, Host: n.host, State: s.state, PVs: n.cluster, Quotas: quota.New("/nowhere"),
		Log: s.log, Now: n.clock.Now, Synchronised: synchronised, SystemPaths: []string{"/"}, Node: s.name, Alone: true,
	})
	if err != nil {
		return nil, err
	}
	n.Manager, err = volume.New(volume.Config{
		Pools: n.set, Mounter: n.mounts, Cluster: n.cluster, Log: s.log, Now: n.clock.Now, IsInline: n.mounts.isInline,
		CopyBytesPerSecond: s.rate, Paths: n.host, Node: hostdir.Node{Root: "/", Kept: []string{statePath}},
	})
	return &n, err
}

// newDisk is a disk with an empty state directory and no pool.
func newDisk() *disktest.Disk {
	d := disktest.New()
	d.AddDir(statePath)
	return d
}

// warm starts a node and takes its pool into use, so that only what follows is under test.
func warm(t testing.TB, d *disktest.Disk, options ...option) *node {
	t.Helper()
	n := start(t, d, options...)
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func openPool(ctx context.Context, n *node) error { return n.openPool(ctx, "local") }

func (n *node) openPool(ctx context.Context, name string) error {
	return n.set.Use(ctx, name, func(*pool.Open) error { return nil })
}

// purge works off a slice of the trash of every pool, with nothing remembered of earlier ones.
func (n *node) purge(ctx context.Context) error {
	var errs []error
	for _, s := range n.specs {
		state, err := newDisk().OpenDir(statePath)
		if err != nil {
			return err
		}
		purger := purge.NewPurger(purge.NewClock(n.clock.Now, synchronised, state))
		errs = append(errs, n.set.Use(ctx, s.Name, func(o *pool.Open) error {
			worker := purger.For(s, slog.New(slog.DiscardHandler), o.Ledger)
			_, err := worker.Purge(ctx, o.Disk, o.Limits, false)
			return err
		}))
	}
	return errors.Join(errs...)
}

func synchronised() bool { return true }

func spec(id string) volume.Spec {
	return volume.Spec{
		ID: id, Pool: "local", Bytes: mebibyte, Mode: 0o777, OnDelete: store.Trash,
		Claim: nodeapi.Claim{Namespace: "ns", Name: "claim"},
	}
}

func mustCreate(t testing.TB, n *node, id string) {
	t.Helper()
	if _, err := n.Create(t.Context(), spec(id)); err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
}

func publish(id, target string) volume.PublishRequest {
	return volume.PublishRequest{ID: id, Target: target}
}

// wants fails the test unless err is the sentinel and its sentence has every part.
func wants(t *testing.T, err, sentinel error, parts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("error %v, want %v", err, sentinel)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the sentence %q does not have %q", err, part)
		}
	}
}

// must fails the test at any error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// reporter is what checks report to: a test, or one try of a property.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// fill writes a file into a volume, durably, as a pod would.
func (n *node) fill(t testing.TB, id string) {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	must(t, d.WriteFile(id+"/precious", []byte("kept"), 0o644), d.Sync(id))
}

// open opens the first pool beside the driver.
func (n *node) open(t reporter) disk.FS {
	t.Helper()
	return n.openAt(t, n.specs[0].Path)
}

func (n *node) openAt(t reporter, path string) disk.FS {
	t.Helper()
	d, err := n.host.Open(path)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	return d
}

// find gives the content of a volume's file, and where below csi/ it is now.
func (n *node) find(t reporter, id string) (content string, places []string) {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	candidates := []string{path.Join(id, "precious"), path.Join(disk.StagingDir, id, "precious")}
	for _, e := range list(t, d, disk.TrashDir) {
		if strings.HasPrefix(e, id+".") {
			candidates = append(candidates, path.Join(disk.TrashDir, e, "data", "precious"))
		}
	}
	for _, name := range candidates {
		if data, err := d.ReadFile(name); err == nil {
			content, places = string(data), append(places, name)
		}
	}
	return content, places
}

// kept wants a volume's data in csi/, and nowhere else.
func (n *node) kept(t reporter, id, about string) {
	t.Helper()
	if content, places := n.find(t, id); content != "kept" || !slices.Equal(places, []string{id + "/precious"}) {
		t.Errorf("%s: the data of %s is %q at %v", about, id, content, places)
	}
}

// list gives the sorted names in a directory below csi/.
func list(t reporter, d disk.FS, dir string) []string {
	t.Helper()
	entries, err := d.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("list %s: %v", dir, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

// ls is list on the node's first pool.
func (n *node) ls(t reporter, dir string) []string {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	return list(t, d, dir)
}

// Delete is that of a caller who says nothing of PersistentVolumes.
func (n *node) Delete(ctx context.Context, id string) error { return n.Manager.Delete(ctx, id, nil) }

// Expand is that of a caller who says nothing of PersistentVolumes.
func (n *node) Expand(ctx context.Context, id string, bytes, limit int64) (volume.Volume, error) {
	return n.Manager.Expand(ctx, id, bytes, limit, nil)
}

// warned reports whether the pool local has a warning of a reason about a volume.
func (n *node) warned(reason, id string) bool {
	return slices.ContainsFunc(n.status().Warnings, func(w nodeapi.Warning) bool {
		return w.Reason == reason && slices.Contains(w.Volumes, id) && strings.Contains(w.Message, id)
	})
}

// status is that of the pool local.
func (n *node) status() nodeapi.PoolStatus {
	all := n.set.Status()
	return all[slices.IndexFunc(all, func(s nodeapi.PoolStatus) bool { return s.Name == "local" })]
}
