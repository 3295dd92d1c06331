package app

import (
	"context"
	"log/slog"
	"maps"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// api is a cluster whose nodes are all gone that are not connected.
type api struct {
	uid string

	mu      sync.Mutex
	ids     map[string]string
	version string
}

func (a *api) Synced() bool                               { return true }
func (a *api) NodesWithDriver(map[string]string) []string { return nil }
func (a *api) NodeGone(context.Context, string) (since time.Time, gone bool, err error) {
	return since, true, nil
}
func (a *api) HasTunnel(context.Context, string) (bool, error) { return true, nil }
func (a *api) RemoveOldCapacity(context.Context, func(string) bool) (found int, err error) {
	return 0, nil
}
func (a *api) TellNode(string, string, string, string) {}
func (a *api) Cluster(context.Context) (string, error) { return a.uid, nil }

func (a *api) Load(context.Context) (ids map[string]string, version string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.ids), a.version, nil
}

func (a *api) Store(_ context.Context, _ string, ids map[string]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids, a.version = ids, a.version+"x"
	return nil
}

// unmounted is a node on which nothing is published.
type unmounted struct{ volume.Mounter }

func (unmounted) Published() (map[string][]string, error) { return map[string][]string{}, nil }

// member is the one node of a cluster, whose controller has just been installed.
type member struct {
	pools   *pool.Set
	volumes *volume.Manager
}

// newMember starts a cluster on a filesystem. Its node, like that of every other, is called worker-1.
func newMember(t *testing.T, filesystem *disktest.Disk, uid string, retention time.Duration) member {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	spec := poolspec.Pool{
		Name: "nfs", Path: "/nfs", Scope: poolspec.ScopeShared, Quota: poolspec.QuotaNone,
		Trash: poolspec.Trash{Retention: poolspec.Duration(retention)},
	}
	a := &api{uid: uid, ids: map[string]string{}}
	hub := fleettest.NewHub(t, "127.0.0.1:0", func(c *fleet.Config) { c.Cluster, c.GoneAfter = a, time.Minute })
	hub.Start(t)
	shared, err := sharedpools.New([]poolspec.Pool{spec}, hub.Fleet, a)
	must(t, err)

	filesystem.AddDir("/state-" + uid)
	state, err := filesystem.OpenDir("/state-" + uid)
	must(t, err)
	standalone := kube.Standalone{Log: log}
	m := member{}
	m.pools, err = pool.New(pool.Config{
		Specs: []poolspec.Pool{spec}, Host: filesystem, State: state, PVs: standalone, Events: standalone,
		Quotas: quota.New("/nowhere"), Log: log, Now: time.Now, Node: "worker-1", SystemPaths: []string{"/"},
		Synchronised: func() bool { return true },
	})
	must(t, err)
	m.volumes, err = volume.New(volume.Config{
		Pools: m.pools, Mounter: unmounted{}, Cluster: standalone, Log: log, Now: time.Now,
		IsInline: func(string, string) bool { return false },
	})
	must(t, err)
	config := (&linktest.Node{Name: "worker-1"}).Config(hub.Address, hub.Authority.PEM)
	config.Source = shown(m)
	end, err := link.NewNode(config)
	must(t, err)
	linktest.Run(t, end)

	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { shared.Run(ctx) })
	running.Go(func() { m.pools.Run(ctx) })
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// becomes waits until the pool has a reason.
func (m member) becomes(t *testing.T, present bool, reason string) {
	t.Helper()
	linktest.Until(t, "the pool is "+reason, func() bool {
		s := m.pools.Status()[0]
		return s.Served() == present && s.Reason == reason
	})
}

// TestTwoClustersOneFilesystem: staging is given production's export. Nothing that production has deleted, and wants to
// keep, is lost by that; until staging says that it is to have it.
func TestTwoClustersOneFilesystem(t *testing.T) {
	filesystem := disktest.New()
	filesystem.Mount("/nfs")
	const production, staging = "11111111-production", "22222222-staging"
	first := newMember(t, filesystem, production, 72*time.Hour)
	first.becomes(t, true, "")
	_, err := first.volumes.Create(t.Context(), volume.Spec{
		ID: "pvc-1", Pool: "nfs", Bytes: 1 << 20, Mode: 0o777, OnDelete: store.Trash,
	})
	must(t, err)
	beside, err := filesystem.Open("/nfs")
	must(t, err)
	t.Cleanup(func() { _ = beside.Close() })
	must(t, beside.WriteFile("pvc-1/precious", []byte("kept"), 0o644))
	must(t, first.volumes.Delete(t.Context(), "pvc-1"))
	kept := func() bool {
		entries, err := beside.ReadDir(path.Join(disk.TrashDir, "worker-1"))
		must(t, err)
		for _, e := range entries {
			data, err := beside.ReadFile(path.Join(disk.TrashDir, "worker-1", e.Name, "data/precious"))
			if err == nil && string(data) == "kept" {
				return true
			}
		}
		return false
	}

	second := newMember(t, filesystem, staging, 0)
	second.becomes(t, false, guard.OtherCluster)
	err = second.pools.Take(t.Context(), "nfs", "a-guess")
	if err == nil || !strings.Contains(err.Error(), production) {
		t.Errorf("take from a guess: %v", err)
	}
	first.becomes(t, true, "")
	if !kept() {
		t.Error("the second cluster has purged the first one's trash")
	}
	must(t, second.pools.Take(t.Context(), "nfs", production))
	second.becomes(t, true, "")
	first.becomes(t, false, guard.OtherCluster)
	linktest.Until(t, "what was deleted is the second cluster's to purge", func() bool { return !kept() })
}
