package volume_test

import (
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// mounts is a mount table in memory.
type mounts struct {
	mu     sync.Mutex
	at     map[string]bindmount.Mount
	inline map[string]string // ids of inline volumes by target, as the kubelet has noted them
}

func newMounts() *mounts {
	return &mounts{at: map[string]bindmount.Mount{}, inline: map[string]string{}}
}

func (m *mounts) isInline(id, target string) bool { return m.inline[target] == id }

func (m *mounts) Inspect(target string) (bindmount.Mount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[target], nil
}

func (m *mounts) Bind(source disk.Handle, target string, o bindmount.Options) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at[target].Mounted {
		panic("bind over a mount at " + target)
	}
	m.at[target] = bindmount.Mount{Mounted: true, Dev: source.Dev, Ino: source.Ino, Options: o}
	return nil
}

func (m *mounts) Unmount(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, target)
	return nil
}

// Published takes the id from the target, as the real one does.
func (m *mounts) Published() (map[string][]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	published := map[string][]string{}
	for target := range m.at {
		id := path.Base(path.Dir(target))
		published[id] = append(published[id], target)
	}
	return published, nil
}

// cluster is the PersistentVolumes that the API has.
type cluster struct {
	mu  sync.Mutex
	pvs []nodeapi.PersistentVolume
	err error
	// others are PersistentVolumes of another driver, by handle.
	others map[string]string
}

func (c *cluster) OfOtherDriver(_ context.Context, id string) (string, error) {
	return c.others[id], c.err
}

// naming is a cluster with PersistentVolumes of these handles, in the pool local of this node.
func naming(ids ...string) *cluster {
	c := &cluster{}
	for _, id := range ids {
		c.pvs = append(c.pvs, nodeapi.PersistentVolume{
			Name: id, Handle: id, Pool: "local", Bytes: mebibyte, Here: true, Nodes: []string{"here"},
		})
	}
	return c
}

// silence lets the API answer nothing but an error, or with nil again.
func (c *cluster) silence(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cluster) Get(_ context.Context, id string) (nodeapi.PersistentVolume, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pv := range c.pvs {
		if pv.Handle == id && c.err == nil {
			return pv, true, nil
		}
	}
	return nodeapi.PersistentVolume{}, false, c.err
}

func (c *cluster) List(context.Context) ([]nodeapi.PersistentVolume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	return slices.Clone(c.pvs), nil
}

type clock struct {
	mu   sync.Mutex
	now  time.Time
	each time.Duration // that passes whenever somebody looks
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(c.each)
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
