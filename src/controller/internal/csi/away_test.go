package csi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestANodeIsAway: within its grace nothing changes; after that claims go elsewhere, and its capacity is 0.
func TestANodeIsAway(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	r.Drivers, r.PVs = []string{"a"}, []nodeapi.PersistentVolume{csitest.Named("v", "a")}
	r.Gone["a"] = time.Time{}
	away := func(why string) {
		t.Helper()
		r.Pass(time.Minute - 100*time.Millisecond)
		_, err := r.Create(t, "1", csitest.GiB, "a")
		csitest.WantCode(t, err, codes.Unavailable, "node a is not connected to the controller, for 1m0s")
		_, err = r.Capacity(t, "a")
		csitest.WantCode(t, err, codes.Unavailable, "node a is not connected")
		r.Pass(100 * time.Millisecond)
		if free, err := r.Capacity(t, "a"); free != 0 || err != nil {
			t.Errorf("%s: capacity %d, %v", why, free, err)
		}
		_, err = r.Create(t, "1", csitest.GiB, "a")
		csitest.WantCode(t, err, codes.ResourceExhausted, "another node is to be chosen")
		csitest.WantCode(t, r.Expand(t, "v"), codes.Unavailable, "node a is not connected")
		csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "node a is not connected")
		r.Set(func() { r.Unsure = true })
		csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable,
			"see whether node a, which is not connected, is gone: "+
				nodeapi.ErrClusterUnknown.Error()+": forbidden")
		r.Set(func() { r.Unsure = false })
	}
	away("it never came")
	stop := r.Hub.Connect(t, &a.Node)
	if node, err := r.Create(t, "1", csitest.GiB, "a"); node != "a" || err != nil {
		t.Errorf("back: on %q, %v", node, err)
	}
	if free, err := r.Capacity(t, "a"); free != csitest.GiB || err != nil {
		t.Errorf("back: capacity %d, %v", free, err)
	}
	stop()
	waittest.Until(t, "it is away", func() bool { return r.Hub.Get("a") == nil })
	away("it left")
}

// TestANodeComesBackInTime: a request that waits for it is answered by it.
func TestANodeComesBackInTime(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	created := make(chan error, 1)
	go func() { _, err := r.Create(t, "1", csitest.GiB, "a"); created <- err }()
	time.Sleep(200 * time.Millisecond) // so that it most often waits already
	r.Hub.Connect(t, &a.Node)
	if err := <-created; err != nil || a.Asked() != "create pvc-1" {
		t.Errorf("got %v", err)
	}
}

// slow is a node that shows its pools late.
type slow struct {
	*csitest.Node
	show chan struct{}
}

func (s slow) Pools() []nodeapi.PoolStatus {
	<-s.show
	return s.Node.Pools()
}

// TestCapacityThatIsNotKnown: a node that has just connected does not count as full.
func TestCapacityThatIsNotKnown(t *testing.T) {
	t.Parallel()
	r := csitest.Start(t)
	r.Pass(time.Hour)
	a := slow{csitest.NewNode("a", csitest.GiB), make(chan struct{})}
	config := a.Config(r.Hub.Address, r.Hub.Authority.PEM)
	config.Source = a
	end, err := link.NewNode(config)
	if err != nil {
		t.Fatal(err)
	}
	linktest.Run(t, end)
	waittest.Until(t, "it is connected", func() bool { return r.Hub.Get("a") != nil })
	_, err = r.Capacity(t, "a")
	csitest.WantCode(t, err, codes.Unavailable, "has not shown its pools yet")
	close(a.show)
	waittest.Until(t, "its room is known", func() bool {
		free, err := r.Capacity(t, "a")
		return free == csitest.GiB && err == nil
	})
}

// TestRelease: the volume of a node that is gone may be forgotten, and nobody else's.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := csitest.Start(t)
	now := r.Clock
	for name, c := range map[string]struct {
		gone     time.Time
		released string
		want     codes.Code
		event    string
	}{
		"there":     {want: codes.Unavailable},
		"just gone": {gone: now.Add(-10*time.Minute + time.Second), want: codes.Unavailable},
		"gone":      {gone: now.Add(-10 * time.Minute), event: "node z is gone: the volume counts as deleted"},
		"given up": {
			released: "z",
			event:    "its annotation gives up what is on node z: the volume counts as deleted",
		},
		"given up wrong": {released: "y", want: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			pv := csitest.Named("v", "z")
			pv.Released = c.released
			r.Set(func() { r.PVs, r.Gone = []nodeapi.PersistentVolume{pv}, map[string]time.Time{"z": c.gone} })
			csitest.WantCode(t, r.Expand(t, "v"), codes.Unavailable, "node z is not connected")
			csitest.WantCode(t, r.Remove(t, "v"), c.want, "node z is not connected")
			events := r.Told("")
			if c.event == "" && len(events) > 0 || c.event != "" && (len(events) != 1 ||
				!strings.HasPrefix(events[0], "Warning pv-v VolumeReleased: "+c.event+"; its data may be left")) {
				t.Errorf("events %q", events)
			}
		})
	}
	// A node that is connected is asked, whatever else is said about it.
	z := csitest.NewNode("z", csitest.GiB)
	r.Hub.Connect(t, &z.Node)
	pv := csitest.Named("v", "z")
	pv.Released = "z"
	r.Set(func() { r.PVs = []nodeapi.PersistentVolume{pv} })
	if err := r.Remove(t, "v"); err != nil || z.Asked() != "delete v" || len(r.Told("")) > 0 {
		t.Errorf("connected: %v", err)
	}
}

// TestAGoneNodeMayHaveAVolumeOfAnyNode: a PersistentVolume that names no node does not make the absence of one without
// a Node object count sooner.
func TestAGoneNodeMayHaveAVolumeOfAnyNode(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{
		"known as a node with the driver": false,
		"forgotten with its Node":         true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, c := csitest.NewNode("a", csitest.GiB), csitest.NewNode("c", csitest.GiB)
			r := csitest.Start(t, a)
			r.Set(func() { r.PVs, r.Gone["c"] = []nodeapi.PersistentVolume{csitest.Named("v")}, r.Clock })
			if forget {
				r.Hub.Forget("c")
			} else {
				r.Set(func() { r.Drivers = append(r.Drivers, "c") })
			}
			r.Pass(time.Minute)
			csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "could not be asked: c (node c is not connected")
			r.Pass(9*time.Minute - time.Second)
			csitest.WantCode(t, r.Remove(t, "v"), codes.Unavailable, "could not be asked: c (node c is not connected")
			if asked := a.Asked(); asked != "" {
				t.Errorf("node a was asked for: %s", asked)
			}
			r.Pass(time.Second)
			csitest.WantCode(t, r.Remove(t, "v"), codes.OK, "")
			c.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
			r.Hub.Connect(t, &c.Node) // it is back after all
			csitest.WantCode(t, r.Remove(t, "v"), codes.OK, "")
			if asked := c.Asked(); asked != "delete v" {
				t.Errorf("node c was asked for: %s", asked)
			}
		})
	}
}

// TestANodeHangs: what needs it ends by its deadline, and others do not wait.
func TestANodeHangs(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	b.Search = func(ctx context.Context, _ string) (bool, error) { return false, hang(ctx) }
	b.Answers(func(ctx context.Context, _ string) error { return hang(ctx) })
	r := csitest.Start(t, a, b)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("on-a", "a"), csitest.Named("on-b", "b")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ended := make(chan error, 20)
	for i := range 20 {
		id := []string{"on-b", "unnamed"}[i%2]
		go func() { _, err := r.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: id}); ended <- err }()
	}
	for range 20 {
		if err := r.Expand(t, "on-a"); err != nil {
			t.Error(err)
		}
	}
	for range 20 {
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
	}
}

// TestASilentNodeDoesNotHoldWhatAnotherHas: a call without a deadline of its own ends, and goes to the node that has
// the volume; where none has, the silent one may.
func TestASilentNodeDoesNotHoldWhatAnotherHas(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	b.Search = func(ctx context.Context, _ string) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
	r := csitest.Start(t, a, b)
	a.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local"})
	ctx := context.WithoutCancel(t.Context())
	if _, err := r.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: "v"}); err != nil || a.Asked() != "delete v" {
		t.Errorf("got %v", err)
	}
	_, err := r.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: "v"})
	csitest.WantCode(t, err, codes.Unavailable, "could not be asked: b (context deadline exceeded)")
}
