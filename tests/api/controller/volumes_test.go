package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// choose: a claim that binds immediately keeps the node that was chosen for it, although the controller is killed
// before its answer and another node has more room then.
func choose(t *testing.T, w *world) {
	claim, q := w.request(t, 16*mib, "")
	thaw := w.nodes["node-1"].Freeze(t)
	answer := make(chan error, 1)
	go func() {
		_, err := w.controller.CreateVolume(t.Context(), q)
		answer <- err
	}()
	harness.Until(t, w.Server, "a node is selected", claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.Annotations[selectedNode] != "node-1" {
			return fmt.Errorf("annotations %v", c.Annotations)
		}
		return nil
	})
	if w.nodes["node-1"].has(q.GetName()) {
		t.Error("the volume was there before its node was selected")
	}
	w.controller.Kill(t)
	if err := <-answer; status.Code(err) != codes.Unavailable {
		t.Errorf("the answer of a controller that was killed: %v", err)
	}
	thaw()

	_, full := w.request(t, 512*mib, "node-1")
	w.create(t, w.replica, full, "node-1")
	w.controller = w.startController(addresses()[0])
	w.controller.connected(t, "node-1", "node-2")
	w.create(t, w.controller, q, "node-1")
	w.create(t, w.replica, q, "node-1")
	w.mostRoom(t, "node-2")
	_, next := w.request(t, 16*mib, "")
	w.create(t, w.controller, next, "node-2")
	for _, id := range []string{full.GetName(), q.GetName(), next.GetName()} {
		w.deleted(t, id)
	}
	w.replica.Stop(t)
}

// scheduler: a volume is made where the scheduler wants it, once, and not for a claim that is gone.
func scheduler(t *testing.T, w *world) {
	_, q := w.request(t, 16*mib, "node-2")
	w.create(t, w.controller, q, "node-2")
	w.create(t, w.controller, q, "node-2")
	w.deleted(t, q.GetName()) // without a PersistentVolume: all nodes are asked
	claim, q := w.request(t, 16*mib, "")
	w.Delete(t, claim)
	w.Gone(t, claim)
	_, err := w.controller.CreateVolume(t.Context(), q)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), claim.Name+" is gone") {
		t.Errorf("a volume for a claim that is gone: %v", err)
	}
}

func growth(t *testing.T, w *world) {
	pv := w.bound(t, "node-2")
	for _, test := range []struct {
		id          string
		bytes, want int64
		code        codes.Code
	}{
		{pv.Name, 32 * mib, 32 * mib, codes.OK},
		{pv.Name, 1 << 40, 0, codes.OutOfRange},
		{pv.Name, 24 * mib, 32 * mib, codes.OK}, // what was asked for instead is there already
		{"pvc-nowhere", 32 * mib, 0, codes.NotFound},
	} {
		answer, err := w.controller.ControllerExpandVolume(t.Context(), &pb.ControllerExpandVolumeRequest{
			VolumeId: test.id, CapacityRange: &pb.CapacityRange{RequiredBytes: test.bytes},
		})
		if status.Code(err) != test.code || answer.GetCapacityBytes() != test.want ||
			answer.GetNodeExpansionRequired() {
			t.Errorf("%s to %d bytes: %v, %v; want %s and %d", test.id, test.bytes, answer, err, test.code, test.want)
		}
	}
	w.deleted(t, pv.Name)
}

// oneHandle: several PersistentVolumes of one volume, as somebody makes them by hand. It is deleted with the last one.
func oneHandle(t *testing.T, w *world) {
	const node = "node-2"
	first := w.bound(t, node)
	id := first.Name
	second, elsewhere := w.persistentVolume(t, "second", id, node), w.persistentVolume(t, "third", id, "node-1")
	use := func(ctx context.Context) error {
		_, err := w.controller.ControllerExpandVolume(ctx, &pb.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &pb.CapacityRange{RequiredBytes: mib},
		})
		return err
	}
	// What is watched comes in order: who knows the third, and that it is gone, knows the second.
	harness.Eventually(t, "the controller knows all three", func(ctx context.Context) error {
		if err := use(ctx); err == nil || !strings.Contains(err.Error(), "third") {
			return fmt.Errorf("a volume of several nodes: %w", err)
		}
		return nil
	})
	w.Delete(t, elsewhere)
	harness.Eventually(t, "the controller knows that the third is gone", use)
	_, err := w.controller.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id})
	want := "PersistentVolumes " + id + ", second all have the volumeHandle " + id
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) {
		t.Errorf("delete a volume of two: %v, want %s", err, want)
	}
	if !w.nodes[node].has(id) {
		t.Error("the volume is gone while two PersistentVolumes have it")
	}
	w.Delete(t, second)
	harness.Eventually(t, "the volume is deleted with the last one", func(ctx context.Context) error {
		_, err := w.controller.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: id})
		return err
	})
	w.deleted(t, id)
}

// gone: the volumes of a node that does not come back are let go once there is no Node object, or when somebody says
// so.
func gone(t *testing.T, w *world) {
	const node = "node-3"
	given, lost := w.bound(t, node), w.bound(t, node)
	w.nodes[node].Kill(t)
	refused := func(ctx context.Context, pv *corev1.PersistentVolume) error {
		_, err := w.controller.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: pv.Name})
		return err
	}
	harness.Eventually(t, "the controller says why it waits", func(ctx context.Context) error {
		err := refused(ctx, given)
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("delete a volume of a node that is away: %v", err)
		}
		if !strings.Contains(err.Error(), "node node-3 is not connected to the controller") {
			return err
		}
		return nil
	})
	harness.Change(t, w.Server, given, func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{names.ReleaseVolume(names.Driver): node}
	})
	released := func(pv *corev1.PersistentVolume, why string) {
		t.Helper()
		harness.Eventually(t, "the volume is let go: "+why, func(ctx context.Context) error { return refused(ctx, pv) })
		w.event(t, pv.Name, "VolumeReleased", why)
	}
	released(given, "its annotation gives up what is on node node-3")
	if err := refused(t.Context(), lost); status.Code(err) != codes.Unavailable {
		t.Errorf("the other volume of that node: %v", err)
	}
	w.Delete(t, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}})
	w.Delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	released(lost, "node node-3 is gone")
	if p := w.nodes[node]; !p.has(given.Name) || !p.has(lost.Name) {
		t.Error("data of a node that is gone was removed")
	}
}

// frozen: a node hangs while requests wait for it. Others are served meanwhile, those requests end, and they are done
// once the node is back.
func frozen(t *testing.T, w *world) {
	const node, waiting = "node-4", 20
	var requests []*pb.CreateVolumeRequest
	for range waiting {
		_, q := w.request(t, mib, node)
		requests = append(requests, q)
	}
	thaw := w.nodes[node].Freeze(t)
	ended := make(chan error, waiting)
	for i, q := range requests {
		timeout, want := time.Minute, codes.Unavailable
		if i%2 == 0 {
			timeout, want = time.Second, codes.DeadlineExceeded
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := w.controller.CreateVolume(ctx, q)
			if status.Code(err) == want {
				err = nil
			}
			ended <- err
		}()
	}
	w.deleted(t, w.bound(t, "node-2").Name)
	if len(ended) == waiting {
		t.Error("nothing waited for the node when another was asked")
	}
	for range waiting {
		if err := <-ended; err != nil {
			t.Errorf("a request for a node that hangs: %v", err)
		}
	}
	thaw()
	w.controller.connected(t, node)
	for _, q := range requests {
		w.create(t, w.controller, q, node)
		w.deleted(t, q.GetName())
	}
}
