package pool

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// hanging is a host on which a path hangs while a test wants it to.
type hanging struct {
	*disktest.Disk
	path    string
	mu      sync.Mutex
	resumed chan struct{} // nil while nothing hangs
	arrived chan struct{}
}

func (h *hanging) Open(path string) (disk.FS, error) {
	h.wait(path)
	return h.Disk.Open(path)
}

func (h *hanging) Inspect(path string) (disk.Facts, error) {
	h.wait(path)
	return h.Disk.Inspect(path)
}

func (h *hanging) wait(path string) {
	h.mu.Lock()
	resumed := h.resumed
	h.mu.Unlock()
	if path == h.path && resumed != nil {
		h.arrived <- struct{}{}
		<-resumed
	}
}

// hang lets the path hang until the function that it gives is called.
func (h *hanging) hang() (resume func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	resumed := make(chan struct{})
	h.resumed = resumed
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.resumed = nil
		close(resumed)
	}
}

// withHanging is a node whose pool local can hang.
func withHanging(t *testing.T) (*node, *hanging) {
	t.Helper()
	memory := disktest.New()
	memory.AddDir("/state")
	memory.Mount("/other")
	h := &hanging{Disk: memory, path: "/pool", arrived: make(chan struct{}, 10)}
	n := newNode(t, h, func(*Config) {}, local(), other())
	n.memory, n.opened = memory, memory.Opened()
	return n, h
}

// TestAHangingDiskKeepsNobodyElse: status, capacity and health come from what was seen last, and the other pool works.
func TestAHangingDiskKeepsNobodyElse(t *testing.T) {
	n, h := withHanging(t)
	n.check(t)
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	n.check(t)
	before, seen := n.status(t, "local"), n.clock.Now()
	resume := h.hang()
	done := make(chan struct{})
	go func() { defer close(done); n.pools[0].Check(t.Context()) }()
	<-h.arrived
	n.clock.pass(interval)
	for range 3 {
		n.pools[1].Check(t.Context())
		n.pools[1].Purge(t.Context())
	}
	if got := n.status(t, "local"); !reflect.DeepEqual(got, before) || !got.Seen.Equal(seen) {
		t.Errorf("%+v, want what was seen before: %+v", got, before)
	}
	if got := n.status(t, "other"); !got.Seen.Equal(n.clock.Now()) {
		t.Errorf("the other pool was looked at %v", got.Seen)
	}
	for _, name := range n.Names() {
		if room, largest := n.Capacity(name); room == 0 || largest == 0 {
			t.Errorf("capacity of %s: %d, %d", name, room, largest)
		}
	}
	if pool, _, ok := n.Find("pvc-1"); !ok || pool != "local" || len(n.Absent()) > 0 || len(n.Untracked()) > 0 {
		t.Errorf("found in %q, %v; absent %v", pool, ok, n.Absent())
	}
	n.volume(t, "other", store.Record{ID: "pvc-2"})
	n.SetNodeLabels(map[string]string{"a": "b"})
	resume()
	<-done
	n.is(t, "local", true, "")
}

// TestADiskThatHangsFromTheStart: the other pool is taken into use, and the status says that this one was not.
func TestADiskThatHangsFromTheStart(t *testing.T) {
	n, h := withHanging(t)
	resume := h.hang()
	done := make(chan error)
	go func() { done <- n.Use(t.Context(), "local", func(*Open) error { return nil }) }()
	<-h.arrived
	n.pools[1].Check(t.Context())
	n.wants(t, "other", true, "")
	n.wants(t, "local", false, "NotChecked")
	if n.status(t, "local").Reason != nodeapi.ReasonNotChecked {
		t.Errorf("%+v", n.status(t, "local"))
	}
	resume()
	must(t, <-done)
	n.is(t, "local", true, "")
}

// TestALongOperation keeps nobody from another one in the same pool, nor from its checks and its purge.
func TestALongOperation(t *testing.T) {
	n := start(t, local())
	n.check(t)
	must(t, n.Use(t.Context(), "local", func(*Open) error {
		done := make(chan error)
		go func() {
			n.pools[0].Check(t.Context())
			n.pools[0].Purge(t.Context())
			done <- n.Use(t.Context(), "local", func(*Open) error { return nil })
		}()
		return <-done
	}))
}

// TestTheAPIIsAskedWithoutALock: while it does not answer about a pool's first use, everything else goes on.
func TestTheAPIIsAskedWithoutALock(t *testing.T) {
	n := start(t, local(), other())
	n.pools[1].Check(t.Context())
	n.clock.pass(askAgain)
	n.cluster.mu.Lock()
	n.cluster.arrived, n.cluster.answer = make(chan struct{}, 10), make(chan struct{})
	n.cluster.mu.Unlock()
	first := make(chan error)
	go func() { first <- n.Use(t.Context(), "local", func(*Open) error { return nil }) }()
	<-n.cluster.arrived
	local := n.pools[0]
	if !local.use.TryLock() {
		t.Fatal("the pool is locked while the API is asked")
	}
	local.use.Unlock()
	if !n.adopting.TryLock() {
		t.Fatal("no other pool can be taken into use while the API is asked")
	}
	n.adopting.Unlock()
	if n.pools[0].open() != nil {
		t.Error("the pool is open before the API has answered")
	}
	if more := local.Purge(t.Context()); more {
		t.Error("there is something to purge")
	}
	n.volume(t, "other", store.Record{ID: "pvc-1"})
	n.pools[1].Check(t.Context())
	n.wants(t, "other", true, "")
	n.wants(t, "local", false, "NotChecked")
	n.SetNodeLabels(map[string]string{"a": "b"})
	close(n.cluster.answer)
	must(t, <-first)
	n.wants(t, "local", true, "")
}

// TestChangedWhileTheAPIAnswers: what was mounted meanwhile is not the pool that was asked about.
func TestChangedWhileTheAPIAnswers(t *testing.T) {
	n := start(t, local())
	n.memory.AddDir("/pool/csi")
	n.cluster.arrived, n.cluster.answer = make(chan struct{}, 10), make(chan struct{})
	first := make(chan error)
	go func() { first <- n.Use(t.Context(), "local", func(*Open) error { return nil }) }()
	<-n.cluster.arrived
	n.memory.Mount("/pool")
	close(n.cluster.answer)
	if err := <-first; !errors.Is(err, ErrAbsent) {
		t.Errorf("use: %v", err)
	}
	n.wants(t, "local", false, "Changing")
	if facts, err := n.memory.Inspect("/pool"); err != nil || facts.CSI {
		t.Errorf("something was made there: %+v, %v", facts, err)
	}
	n.is(t, "local", true, "")
}

// TestASlowOperationKeepsNoOtherWaiting: a snapshot may take long, and a look at the pool waits for it alone.
func TestASlowOperationKeepsNoOtherWaiting(t *testing.T) {
	n := start(t, local())
	begun, end := make(chan struct{}), make(chan struct{})
	slow, looked := make(chan error), make(chan struct{})
	go func() {
		slow <- n.Use(t.Context(), "local", func(*Open) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	p := n.find("local")
	go func() {
		p.refresh(t.Context())
		close(looked)
	}()
	for p.refreshing.TryLock() { // the look has not begun
		p.refreshing.Unlock()
		time.Sleep(tryAgain)
	}
	for range 5 { // by now it waits, or does so during these
		must(t, n.use(t, "local"))
		time.Sleep(tryAgain)
	}
	close(end)
	must(t, <-slow)
	<-looked
	must(t, n.use(t, "local"))
}
