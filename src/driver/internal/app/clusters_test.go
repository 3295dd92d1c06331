package app

import (
	"cmp"
	"context"
	"log/slog"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

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
	filesystem.AddDir("/state-" + uid)
	state, err := filesystem.OpenDir("/state-" + uid)
	must(t, err)
	standalone := kube.Standalone{}
	m := member{}
	m.pools, err = pool.New(pool.Config{
		Specs: []poolspec.Pool{spec}, Host: filesystem, State: state, PVs: standalone,
		Quotas: quota.New("/nowhere"), Log: log, Now: time.Now, Node: "worker-1", SystemPaths: []string{"/"},
		Synchronised: func() bool { return true },
	})
	must(t, err)
	m.volumes, err = volume.New(volume.Config{
		Pools: m.pools, Mounter: unmounted{}, Cluster: standalone, Log: log, Now: time.Now,
		IsInline: func(string, string) bool { return false }, Paths: filesystem, Node: hostdir.Node{Root: "/"},
	})
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { m.obey(ctx, uid) })
	running.Go(func() { m.pools.Run(ctx) })
	return m
}

// obey says to the node what its controller does: whose the shared pool is, which filesystem once a node has it, and
// that it may be made.
func (m member) obey(ctx context.Context, uid string) {
	id := ""
	for ctx.Err() == nil {
		is := m.pools.Status()[0]
		id = cmp.Or(id, is.ID)
		m.pools.SetExpected(map[string]guard.Expected{"nfs": {ID: id, Make: id == "" && is.Waiting, Owner: uid}})
		time.Sleep(10 * time.Millisecond)
	}
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
	waittest.Until(t, "the pool is "+reason, func() bool {
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
	must(t, first.volumes.Delete(t.Context(), "pvc-1", nil))
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
	waittest.Until(t, "what was deleted is the second cluster's to purge", func() bool { return !kept() })
}
