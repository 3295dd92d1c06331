package volume_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// hanging is a host whose pools hang until it is resumed.
type hanging struct {
	disk.Host
	arrived, resumed chan struct{}
}

func (h hanging) Open(path string) (disk.FS, error) {
	select {
	case h.arrived <- struct{}{}:
	default:
	}
	<-h.resumed
	return h.Host.Open(path)
}

// TestUnpublishOfAnUnknownVolume, as after a restart, does not wait for a pool that hangs.
func TestUnpublishOfAnUnknownVolume(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	h := hanging{Host: d, arrived: make(chan struct{}, 1), resumed: make(chan struct{})}
	again := start(t, d, withMounts(n.mounts), withHost(h), withPools(retained("local", poolPath)))
	must(t, again.Unpublish(t.Context(), "pvc-1", target))
	close(h.resumed)
}

// TestAHangingPoolKeepsOneCaller: each further question about a volume is answered at once.
func TestAHangingPoolKeepsOneCaller(t *testing.T) {
	d := newDisk()
	h := hanging{Host: d, arrived: make(chan struct{}, 1), resumed: make(chan struct{})}
	n := start(t, d, withHost(h))
	first := make(chan struct{})
	go func() { defer close(first); _, _ = n.Stats(context.WithoutCancel(t.Context()), "pvc-1", target) }()
	<-h.arrived
	_, err := n.Stats(t.Context(), "pvc-1", target)
	wants(t, err, volume.ErrBusy)
	answers := make(chan error)
	for range 2 {
		go func() { _, _, err := n.Has(context.WithoutCancel(t.Context()), "pvc-1"); answers <- err }()
	}
	wants(t, <-answers, volume.ErrBusy)
	close(h.resumed)
	must(t, <-answers)
	<-first
}

// slowShared is a host with the pools local, nfs and smb, of which the last two are shared and may hang.
type slowShared struct {
	disk.Host
	hang    sync.Map // of paths
	resumed chan struct{}
}

func (h *slowShared) Open(path string) (disk.FS, error) {
	if _, hangs := h.hang.Load(path); hangs {
		<-h.resumed
	}
	return h.Host.Open(path)
}

// withShared is a node with a volume in each of three pools, two of them shared.
func withShared(t *testing.T) (*node, *slowShared, *disktest.Disk) {
	t.Helper()
	d := newDisk()
	h := &slowShared{Host: d, resumed: make(chan struct{})}
	specs := []poolspec.Pool{retained("local", poolPath), retained("nfs", "/nfs"), retained("smb", "/smb")}
	for i := 1; i < 3; i++ {
		d.Mount(specs[i].Path)
		specs[i].Scope, specs[i].Quota, specs[i].Inline = poolspec.ScopeShared, poolspec.QuotaNone, false
	}
	n := start(t, d, withHost(h), withPools(specs...))
	for _, s := range specs {
		asked := spec("pvc-" + s.Name)
		asked.Pool = s.Name
		_, err := n.Create(t.Context(), asked)
		must(t, err)
	}
	return n, h, d
}

// TestAHangingSharedPoolStopsNoCreate, neither in a pool of this node nor in another shared one.
func TestAHangingSharedPoolStopsNoCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h, _ := withShared(t)
		h.hang.Store("/nfs", nil)
		began := time.Now()
		mustCreate(t, n, "pvc-1")
		inline := spec("csi-1")
		inline.Ephemeral = true
		must(t, n.Publish(t.Context(), volume.PublishRequest{ID: "csi-1", Target: target, Inline: &inline}))
		if took := time.Since(began); took > 0 {
			t.Errorf("a create in a pool of this node waits %v for a shared one", took)
		}
		for i, most := range []time.Duration{2 * time.Second, 0, 0} {
			began = time.Now()
			s := spec(fmt.Sprintf("pvc-smb-%d", i))
			s.Pool = "smb"
			_, err := n.Create(t.Context(), s)
			must(t, err)
			if took := time.Since(began); took > most {
				t.Errorf("create %d in a shared pool waits %v for another, want %v at most", i, took, most)
			}
		}
		close(h.resumed)
		h.hang.Clear()
		synctest.Wait()
		s := spec("pvc-nfs")
		s.Pool = "smb"
		_, err := n.Create(t.Context(), s)
		wants(t, err, volume.ErrExists, "is in pool nfs")
	})
}

// TestAHangingPoolInLists: the volumes of the others are listed, and the error names the one that hangs.
func TestAHangingPoolInLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h, _ := withShared(t)
		h.hang.Store("/nfs", nil)
		var got []string
		visit := func(s nodeapi.VolumeStatus) error { got = append(got, s.ID); return nil }
		wants(t, n.Each(t.Context(), visit), context.DeadlineExceeded, "pool nfs")
		if !slices.Equal(got, []string{"pvc-local", "pvc-smb"}) {
			t.Errorf("listed %v", got)
		}
		close(h.resumed)
		h.hang.Clear()
		synctest.Wait()
		got = nil
		must(t, n.Each(t.Context(), visit))
		if len(got) != 3 {
			t.Errorf("listed %v", got)
		}
	})
}

// TestAHangingPoolKeepsNoAdoption in others, and is not asked twice.
func TestAHangingPoolKeepsNoAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h, d := withShared(t)
		c := naming("pvc-here", "pvc-there")
		c.pvs[1].Pool = "nfs"
		d.AddDir(poolPath + "/csi/pvc-here")
		d.AddDir("/nfs/csi/pvc-there")
		n = start(t, d, withHost(h), withPools(n.specs...), withCluster(c))
		for _, s := range n.specs {
			must(t, n.openPool(t.Context(), s.Name))
		}
		h.hang.Store("/nfs", nil)
		for range 3 {
			brief, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := n.AdoptUntracked(brief); err == nil {
				t.Error("a pool that hangs is no error")
			}
			cancel()
			if in, _, _ := n.set.Find("pvc-here"); in != "local" {
				t.Error("nothing is adopted in the pool that works")
			}
		}
		close(h.resumed)
		synctest.Wait()
		if in, _, _ := n.set.Find("pvc-there"); in != "nfs" {
			t.Error("nothing is adopted in the pool that is back")
		}
	})
}
