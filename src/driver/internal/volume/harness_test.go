package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	poolPath  = "/pool"
	statePath = "/state"
	target    = "/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"
)

// node is the real manager and pools over an in-memory disk: only the operating system's edge is not real.
type node struct {
	*volume.Locked
	set     *pool.Set
	disk    *memfs.Disk
	mounts  *mounts
	cluster *cluster
	events  *events
	clock   *clock
	purger  *trash.Purger
}

// option changes how a node is started.
type option func(*setup)

type setup struct {
	specs   []poolspec.Pool
	mounts  *mounts
	cluster *cluster
	clock   *clock
}

func withPools(specs ...poolspec.Pool) option { return func(s *setup) { s.specs = specs } }
func withCluster(c *cluster) option           { return func(s *setup) { s.cluster = c } }
func withMounts(m *mounts) option             { return func(s *setup) { s.mounts = m } }

// retained is a pool whose trash is kept, so that tests see what is in it.
func retained(name, path string) poolspec.Pool {
	return poolspec.Pool{Name: name, Path: path, Trash: poolspec.Trash{Retention: poolspec.Duration(time.Hour)}}
}

// start starts a driver's domain on a disk, as after a boot of the process.
func start(t *testing.T, disk *memfs.Disk, options ...option) *node {
	t.Helper()
	n, err := tryStart(disk, options...)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return n
}

func tryStart(disk *memfs.Disk, options ...option) (*node, error) {
	s := setup{
		specs: []poolspec.Pool{retained("local", poolPath)}, mounts: newMounts(), cluster: &cluster{},
		clock: &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)},
	}
	for _, o := range options {
		o(&s)
	}
	n := &node{disk: disk, mounts: s.mounts, cluster: s.cluster, events: &events{}, clock: s.clock}
	bin := trash.Bin{Now: s.clock.Now}
	n.purger = trash.NewPurger(bin)
	stateDir, err := disk.OpenDir(statePath)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	n.set, err = pool.New(pool.Config{
		Specs: s.specs, Disk: disk, State: stateDir, Cluster: s.cluster, Events: n.events,
		Purger: n.purger, Log: log, Now: s.clock.Now, SystemPaths: []string{"/"},
	})
	if err != nil {
		return nil, err
	}
	manager, err := volume.New(volume.Config{
		Pools: n.set, Records: store.Files{}, Bin: bin, Mounter: s.mounts, Cluster: s.cluster, Log: log, Now: s.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	n.set.Use(manager)
	n.Locked = volume.NewLocked(manager)
	return n, nil
}

// reporter is what checks say their findings to: a test, or one try of a property.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// worker purges trash apart from the pool's own.
func (n *node) worker(retention time.Duration) *trash.Worker {
	return n.purger.For(retention, func(poolfs.FS, volume.Record) error { return nil })
}

// newDisk is a disk with an empty state directory and no pool.
func newDisk(t *testing.T) *memfs.Disk {
	t.Helper()
	disk := memfs.New()
	disk.AddDir(statePath)
	return disk
}

// quotas are what a test of every backend runs on.
func quotas() map[string]poolfs.Quota {
	return map[string]poolfs.Quota{
		"plain": poolfs.QuotaOff, "project": poolfs.QuotaProject, "simple": poolfs.QuotaSimple, "qgroups": poolfs.QuotaFull,
	}
}

// quotaDisk is newDisk with a quota.
func quotaDisk(t *testing.T, q poolfs.Quota) *memfs.Disk {
	t.Helper()
	disk := newDisk(t)
	if q != poolfs.QuotaOff {
		disk.SetQuota(poolPath, q)
	}
	return disk
}

func spec(id string) volume.Spec {
	return volume.Spec{ID: id, Pool: "local", Bytes: 1 << 20, Mode: 0o777, OnDelete: volume.Trash, Claim: volume.Claim{Namespace: "ns", Name: "claim"}}
}

// fill writes a file into a volume, durably, as a pod would.
func (n *node) fill(t *testing.T, id string) {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	err := errors.Join(disk.WriteFile(id+"/precious", []byte("kept"), 0o644), disk.Sync(id))
	if err != nil {
		t.Fatalf("fill volume %s: %v", id, err)
	}
}

func (n *node) open(t reporter) poolfs.FS {
	t.Helper()
	disk, err := n.disk.Open(poolPath)
	if err != nil {
		t.Fatalf("open %s: %v", poolPath, err)
	}
	return disk
}

// find gives the content of a volume's file, wherever below csi/ it is now, and how often it is there.
func (n *node) find(t *testing.T, id string) (content string, places []string) {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	candidates := []string{path.Join(id, "precious"), path.Join(poolfs.StagingDir, id, "precious")}
	for _, e := range list(t, disk, poolfs.TrashDir) {
		if strings.HasPrefix(e, id+".") {
			candidates = append(candidates, path.Join(poolfs.TrashDir, e, "data", "precious"))
		}
	}
	for _, name := range candidates {
		if data, err := disk.ReadFile(name); err == nil {
			content, places = string(data), append(places, name)
		}
	}
	return content, places
}

// list gives the sorted names in a directory below csi/.
func list(t reporter, disk poolfs.FS, dir string) []string {
	t.Helper()
	entries, err := disk.ReadDir(dir)
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

// ls is list on a pool of the node.
func (n *node) ls(t reporter, dir string) []string {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	return list(t, disk, dir)
}

// consistent checks what must hold after any recovery: nothing but records among the records, nothing in staging, a directory for
// every record and a record for every directory, promises that are the sum of the records, limits on the disk as the records say, and
// nobody's data in two places.
func (n *node) consistent(t reporter, about string) {
	t.Helper()
	records := n.ls(t, poolfs.VolumesDir)
	data := slices.DeleteFunc(n.ls(t, "."), func(s string) bool { return s == poolfs.MetaDir })
	for i := range records {
		records[i] = strings.TrimSuffix(records[i], ".json")
	}
	if !slices.Equal(records, data) {
		t.Errorf("%s: records %v, directories %v", about, records, data)
	}
	if staged := n.ls(t, poolfs.StagingDir); len(staged) > 0 {
		t.Errorf("%s: staging holds %v", about, staged)
	}
	all := n.records(t)
	var want int64
	for _, r := range all {
		want += r.Bytes
	}
	status := n.set.Status()[0]
	if status.Promised != want || status.Volumes != len(records) || status.Lost+status.Refused > 0 {
		t.Errorf("%s: status %+v, want %d volumes that promise %d bytes", about, status, len(records), want)
	}
	n.limited(t, all, about)
}

// records reads every record of the pool.
func (n *node) records(t reporter) map[string]volume.Record {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	all := map[string]volume.Record{}
	for _, name := range list(t, disk, poolfs.VolumesDir) {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		r, err := store.Files{}.Read(disk, id)
		if err != nil {
			t.Fatal(err)
		}
		all[id] = r
	}
	return all
}

// limited checks that the disk holds the limits of these records, those of volumes in the trash maybe, and no others, and that every
// volume counts to its own.
func (n *node) limited(t reporter, records map[string]volume.Record, about string) {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	quotas, _ := poolfs.QuotasOf(disk)
	if on, _, err := quotas.Quota(); err != nil || on == poolfs.QuotaOff {
		return
	}
	accounts, err := quotas.Accounts(0, math.MaxUint32)
	if err != nil {
		t.Fatal(err)
	}
	limits := map[uint32]int64{}
	for _, a := range accounts {
		limits[a.Number] = a.Limit.Bytes
	}
	for id, r := range records {
		if r.ProjectID == 0 && !r.Adopted {
			t.Errorf("%s: volume %s has no number", about, id)
		}
		number, err := quotas.CountedBy(id)
		if err != nil || number != r.ProjectID || (number != 0 && limits[number] != r.Bytes) {
			t.Errorf("%s: volume %s counts to %d (%v) with limit %d, its record says %d with %d", about, id, number, err, limits[number], r.ProjectID, r.Bytes)
		}
		delete(limits, r.ProjectID)
	}
	inTrash, err := n.purger.Numbers(disk)
	if err != nil {
		t.Fatal(err)
	}
	for number := range inTrash {
		delete(limits, number)
	}
	if len(limits) > 0 {
		t.Errorf("%s: limits that no volume has are left: %v", about, limits)
	}
}

// mounts is a mount table in memory.
type mounts struct {
	mu sync.Mutex
	at map[string]volume.Mount
	by map[string]string // target to the name that was mounted
}

func newMounts() *mounts { return &mounts{at: map[string]volume.Mount{}, by: map[string]string{}} }

func (m *mounts) Inspect(target string) (volume.Mount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[target], nil
}

func (m *mounts) Bind(source poolfs.Handle, target string, o volume.MountOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at[target].Mounted {
		panic("bind over a mount at " + target)
	}
	m.at[target] = volume.Mount{Mounted: true, Dev: source.Dev, Ino: source.Ino, MountOptions: o}
	return nil
}

func (m *mounts) Unmount(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, target)
	return nil
}

func (m *mounts) Published() (map[string][]string, error) {
	published := map[string][]string{}
	for target, id := range m.by {
		published[id] = append(published[id], target)
	}
	return published, nil
}

// cluster is the PersistentVolumes that the API knows.
type cluster struct {
	pvs []volume.PersistentVolume
	err error
	// heard, if set, is called when a claim has been told something.
	heard func()
	// asked, if set, is called before a list is answered.
	asked func()

	mu   sync.Mutex
	told []string // events on claims
}

func (c *cluster) Tell(claim volume.Claim, reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, claim.Namespace+"/"+claim.Name+" "+reason+": "+message)
	if c.heard != nil {
		c.heard()
	}
}

func (c *cluster) Volume(_ context.Context, id string) (volume.PersistentVolume, bool, error) {
	for _, pv := range c.pvs {
		if pv.Handle == id {
			return pv, true, c.err
		}
	}
	return volume.PersistentVolume{}, false, c.err
}

func (c *cluster) Volumes(context.Context) ([]volume.PersistentVolume, error) {
	pvs, err := c.pvs, c.err
	if c.asked != nil {
		c.asked()
	}
	return pvs, err
}

// events keeps what people would be told.
type events struct {
	mu   sync.Mutex
	told []string
}

func (e *events) Normal(reason, message string)  { e.add(reason + ": " + message) }
func (e *events) Warning(reason, message string) { e.add(reason + ": " + message) }

func (e *events) add(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, s)
}

// tell looks for an event of a reason whose message holds a word.
func (e *events) tell(reason, word string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.told, func(s string) bool { return strings.HasPrefix(s, reason+": ") && strings.Contains(s, word) })
}

// count is how many events of a reason there were.
func (e *events) count(reason string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, told := range e.told {
		if strings.HasPrefix(told, reason+": ") {
			n++
		}
	}
	return n
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
