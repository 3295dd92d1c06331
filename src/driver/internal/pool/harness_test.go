package pool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// cluster is the PersistentVolumes that the API knows.
type cluster struct {
	mu    sync.Mutex
	pvs   []nodeapi.PersistentVolume
	err   error
	asked int
	// arrived, if set, receives when the API is asked, which answers once answer is closed.
	arrived, answer chan struct{}
}

func (c *cluster) List(context.Context) ([]nodeapi.PersistentVolume, error) {
	c.mu.Lock()
	c.asked++
	arrived, answer := c.arrived, c.answer
	c.mu.Unlock()
	if answer != nil {
		arrived <- struct{}{}
		<-answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pvs), c.err
}

func (c *cluster) knows(err error, pvs ...nodeapi.PersistentVolume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pvs, c.err = pvs, err
}

// here is a nodeapi.PersistentVolume of this node.
func here(handle, pool string) nodeapi.PersistentVolume {
	return nodeapi.PersistentVolume{Name: handle, Handle: handle, Pool: pool, Here: true, Nodes: []string{"this"}}
}

// node is the pools of a node, on a host in memory.
type node struct {
	*Set
	memory  *disktest.Disk
	opened  int // directories of it before any operation
	cluster *cluster
	clock   *clock
	log     *loggingtest.Log
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

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func local() poolspec.Pool {
	return poolspec.Pool{Name: "local", Path: "/pool", Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto}
}

// other is a pool on a filesystem of its own.
func other() poolspec.Pool {
	return poolspec.Pool{Name: "other", Path: "/other", Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto}
}

// start is the first start of a driver on a node.
func start(t *testing.T, specs ...poolspec.Pool) *node {
	t.Helper()
	memory := disktest.New()
	memory.AddDir("/state")
	memory.Mount("/other")
	return restart(t, memory, specs...)
}

// restart is a start on a node that has a history.
func restart(t *testing.T, memory *disktest.Disk, specs ...poolspec.Pool) *node {
	t.Helper()
	n := newNode(t, memory, func(*Config) {}, specs...)
	n.memory, n.opened = memory, memory.Opened()
	return n
}

func newNode(t *testing.T, host host, change func(*Config), specs ...poolspec.Pool) *node {
	t.Helper()
	state, err := host.OpenDir("/state")
	must(t, err)
	t.Cleanup(func() { _ = state.Close() })
	n := &node{
		cluster: &cluster{}, log: &loggingtest.Log{},
		clock: &clock{now: time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)},
	}
	c := Config{
		Specs: specs, Host: host, State: state, PVs: n.cluster, Quotas: quota.New(t.TempDir()),
		Log: n.log.Logger(), Now: n.clock.Now, SystemPaths: []string{"/"},
		Synchronised: func() bool { return true }, Node: "this", Alone: true, OSPaths: []string{"/"},
	}
	change(&c)
	n.Set, err = New(c)
	must(t, err)
	return n
}

// host is a disk.Host with a state directory.
type host interface {
	disk.Host
	OpenDir(path string) (disk.FS, error)
}

// real is the machine itself below a directory.
type real struct {
	*disk.HostDisk
	root string
}

func (r real) OpenDir(path string) (disk.FS, error) { return disk.OpenDir(filepath.Join(r.root, path)) }

// onMachine is a node whose pools are on the machine, below root.
func onMachine(t *testing.T, root string, specs ...poolspec.Pool) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root: it uses the host's filesystems")
	}
	must(t, os.MkdirAll(filepath.Join(root, "state"), 0o700))
	return newNode(t, real{disk.NewHost(root), root}, func(c *Config) { c.OSPaths = nil }, specs...)
}

// use is Use with nothing to do.
func (n *node) use(t *testing.T, name string) error {
	t.Helper()
	return n.Use(t.Context(), name, func(*Open) error { return nil })
}

// check looks at every pool, as the watcher does.
func (n *node) check(t *testing.T) {
	t.Helper()
	for _, p := range n.pools {
		p.Check(t.Context())
	}
	if n.memory != nil {
		if opened := n.memory.Opened(); opened != n.opened {
			t.Errorf("%d directories are open between operations, want %d", opened, n.opened)
		}
	}
}

// status is that of one pool.
func (n *node) status(t *testing.T, name string) nodeapi.PoolStatus {
	t.Helper()
	for _, s := range n.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no status of %s", name)
	return nodeapi.PoolStatus{}
}

// warnings are those of a pool, with their volumes.
func (n *node) warnings(t *testing.T, name string) string {
	t.Helper()
	var all []string
	for _, w := range n.status(t, name).Warnings {
		all = append(all, strings.TrimSpace(w.Reason+" "+strings.Join(w.Volumes, " ")))
	}
	return strings.Join(all, ", ")
}

// logged is how often something was logged.
func (n *node) logged(message string) int {
	return strings.Count(n.log.String(), "msg="+strconv.Quote(message))
}

// wants compares whether a pool can be used and the reason that its status has, and what Use says of it.
func (n *node) wants(t *testing.T, name string, present bool, reason string) {
	t.Helper()
	s := n.status(t, name)
	if s.Served() != present || s.Reason != reason || (reason == "") != (s.Message == "") {
		t.Errorf("pool %s is present %v, %q (%s); want %v, %q", name, s.Served(), s.Reason, s.Message, present, reason)
	}
	if room, largest := n.Capacity(name); !present && room+largest != 0 {
		t.Errorf("pool %s is absent and has a capacity of %d, %d", name, room, largest)
	}
}

// is checks all pools, and then wants.
func (n *node) is(t *testing.T, name string, present bool, reason string) {
	t.Helper()
	n.check(t)
	n.wants(t, name, present, reason)
	if err := n.use(t, name); (err == nil) != present {
		t.Errorf("use of pool %s: %v", name, err)
	}
}

// volume puts a volume of 4 KiB without a quota into a pool, as a create does.
func (n *node) volume(t *testing.T, pool string, r store.Record) {
	t.Helper()
	r.Version, r.Bytes, r.Backend, r.Pool = store.Version, 4096, quota.Plain, pool
	err := n.Use(t.Context(), pool, func(o *Open) error {
		err := errors.Join(o.Disk.Mkdir(r.ID, 0o700), store.Add(o.Disk, r), o.Disk.Sync("."))
		if err == nil {
			_, err = o.Reconcile(r)
		}
		return err
	})
	must(t, err)
}

// encode is a record file.
func encode(t *testing.T, r store.Record) []byte {
	t.Helper()
	r.Version = store.Version
	data, err := json.Marshal(r)
	must(t, err)
	return data
}

// volumes are the ids in the ledgers, sorted.
func (n *node) volumes() (ids []string) {
	n.Each(func(_, id string, _ ledger.Volume) { ids = append(ids, id) })
	slices.Sort(ids)
	return ids
}
