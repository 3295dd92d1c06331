package controller_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// fromVolume makes a request one for a clone.
func fromVolume(q *pb.CreateVolumeRequest, id string) *pb.CreateVolumeRequest {
	q.VolumeContentSource = &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Volume{
		Volume: &pb.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
	return q
}

// fromSnapshot makes a request one for a copy of a snapshot.
func fromSnapshot(q *pb.CreateVolumeRequest, id string) *pb.CreateVolumeRequest {
	q.VolumeContentSource = &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Snapshot{
		Snapshot: &pb.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
	return q
}

// write writes a file of so many MiB into a volume, and gives its checksum.
func (p *program) write(t *testing.T, id string, size int) [sha256.Size]byte {
	t.Helper()
	content := bytes.Repeat([]byte("restored"), size*mib/8)
	for i := range size {
		content[i*mib] = byte(i)
	}
	if err := os.WriteFile(p.file(id), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}

func (p *program) file(id string) string { return filepath.Join(p.dir, "pool", "csi", id, "data") }

// hasCopy wants a file with a checksum in a volume.
func (p *program) hasCopy(t *testing.T, id string, sum [sha256.Size]byte) {
	t.Helper()
	content, err := os.ReadFile(p.file(id))
	if err != nil || sha256.Sum256(content) != sum {
		t.Errorf("%s has %d bytes of something else: %v", id, len(content), err)
	}
}

// copied is how many bytes of a volume a node has on the disk for good, -1 where it has no record of a copy.
func (p *program) copied(id string) int64 {
	var record struct {
		Source struct {
			From []byte `json:"from"`
		} `json:"source"`
	}
	var place struct {
		Bytes int64 `json:"bytes"`
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "pool", "csi", ".hpp", "volumes", id+".json"))
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err == nil {
		err = json.Unmarshal(record.Source.From, &place)
	}
	if err != nil {
		return -1
	}
	return place.Bytes
}

// restored: a snapshot or a volume becomes one where the pod is to run, or at its source if the class says so. What is
// cut off in the middle goes on.
func restored(t *testing.T, w *world) {
	first, second := w.nodes["node-1"], w.nodes["node-2"]
	pv := w.bound(t, "node-1")
	sum := first.write(t, pv.Name, 8)
	snapshot := w.snapshot(t, pv.Name)
	later := first.write(t, pv.Name, 4)

	_, clone := w.request(t, 16*mib, "node-2")
	w.createCopy(t, fromVolume(clone, pv.Name))
	w.create(t, w.controller, clone, "node-2")
	second.hasCopy(t, clone.GetName(), later)
	_, q := w.request(t, 16*mib, "node-2")
	w.createCopy(t, fromSnapshot(q, snapshot))
	w.create(t, w.controller, q, "node-2")
	second.hasCopy(t, q.GetName(), sum)
	_, stays := w.request(t, 16*mib, "node-2")
	stays.Parameters["restoreTo"] = "source"
	w.createCopy(t, fromSnapshot(stays, snapshot))
	w.create(t, w.controller, stays, "node-1")
	first.hasCopy(t, stays.GetName(), sum)
	for to, want := range map[string]codes.Code{"anywhere": codes.InvalidArgument, "pod": codes.OutOfRange} {
		_, small := w.request(t, 8*mib, "node-2")
		small.Parameters["restoreTo"] = to
		_, err := w.controller.CreateVolume(t.Context(), fromSnapshot(small, snapshot))
		if status.Code(err) != want || second.copied(small.GetName()) != -1 {
			t.Errorf("smaller than its source, to %s: %v", to, err)
		}
	}
	for _, id := range []string{q.GetName(), stays.GetName(), clone.GetName(), pv.Name} {
		w.deleted(t, id)
	}
	w.deleteSnapshot(t, snapshot)
	w.cutOff(t)
}

// cutOff kills the controller, the source's driver and the target's in the middle of a restore. After each the test
// changes the first byte of the copy: that stays, unless the copy begins anew.
func (w *world) cutOff(t *testing.T) {
	t.Helper()
	_, q := w.request(t, 300*mib, "node-1")
	w.create(t, w.controller, q, "node-1")
	sum := w.nodes["node-1"].write(t, q.GetName(), 256)
	snapshot := w.snapshot(t, q.GetName())
	w.deleted(t, q.GetName())
	_, copied := w.request(t, 300*mib, "node-2")
	fromSnapshot(copied, snapshot)
	first := byte(0)
	for _, victim := range []string{"controller", "node-1", "node-2"} {
		w.killed(t, victim, copied)
		if w.nodes["node-2"].has(copied.GetName()) {
			t.Logf("it was whole before %s was killed", victim)
			break
		}
		changed(t, w.nodes["node-2"].staged(copied.GetName()), first, 'x')
		first = 'x'
	}
	w.createCopy(t, copied)
	changed(t, w.nodes["node-2"].file(copied.GetName()), first, 0)
	w.nodes["node-2"].hasCopy(t, copied.GetName(), sum)
	w.deleted(t, copied.GetName())
	w.unclaimed(t, snapshot)
	w.deleteSnapshot(t, snapshot)
}

// unclaimed deletes the claim of a restore that has begun: of the copy nothing is left.
func (w *world) unclaimed(t *testing.T, snapshot string) {
	t.Helper()
	target := w.nodes["node-2"]
	claim, q := w.request(t, 300*mib, "node-2")
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	if _, err := w.controller.CreateVolume(ctx, fromSnapshot(q, snapshot)); err == nil {
		t.Log("it was whole before its claim was deleted")
	}
	if target.copied(q.GetName()) < 0 && !target.has(q.GetName()) {
		t.Error("no copy has begun")
	}
	w.Delete(t, claim)
	harness.Eventually(t, "the copy is ended", func(ctx context.Context) error {
		_, err := w.controller.CreateVolume(ctx, q)
		if code := status.Code(err); code != codes.InvalidArgument {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	_, err := os.Stat(filepath.Dir(target.staged(q.GetName())))
	if target.copied(q.GetName()) >= 0 || target.has(q.GetName()) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", q.GetName(), err)
	}
}

func (p *program) staged(id string) string {
	return filepath.Join(p.dir, "pool", "csi", ".hpp", "staging", id, "data")
}

// killed kills the controller or a node's driver after more data has come to node-2, and starts it again. Unless it is
// node-2's, that node has noted how far it is.
func (w *world) killed(t *testing.T, victim string, q *pb.CreateVolumeRequest) {
	t.Helper()
	target := w.nodes["node-2"]
	before, asked := max(0, target.copied(q.GetName())), make(chan error, 1)
	go func() {
		_, err := w.controller.CreateVolume(context.WithoutCancel(t.Context()), q)
		asked <- err
	}()
	harness.Eventually(t, "data arrives", func(context.Context) (err error) {
		for range 1000 { // more often than Eventually looks
			var info os.FileInfo
			if info, err = os.Stat(target.staged(q.GetName())); err == nil && info.Size() < before+8*mib {
				err = fmt.Errorf("there are %d bytes", info.Size())
			}
			if err == nil || target.has(q.GetName()) {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
		return err
	})
	process := w.controller
	if victim != "controller" {
		process = w.nodes[victim]
	}
	process.Kill(t)
	if err := <-asked; err != nil && !passes(err) {
		t.Errorf("%s was killed: %v", victim, err)
	}
	harness.Eventually(t, "the node has noted how far it is", func(context.Context) error {
		if victim != "node-2" && target.copied(q.GetName()) <= before && !target.has(q.GetName()) {
			return errors.New("it has not")
		}
		return nil
	})
	t.Logf("%s was killed, and %d bytes are noted", victim, target.copied(q.GetName()))
	if victim == "controller" {
		w.controller = w.startController(addresses()[0])
	} else {
		w.nodes[victim] = w.startNode(w.whole, victim, process.dir)
	}
	w.controller.connected(t, "node-1", "node-2")
}

// changed wants a first byte in a file, and changes it.
func changed(t *testing.T, file string, from, to byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	is := []byte{0}
	if _, err = f.ReadAt(is, 0); err == nil {
		_, err = f.WriteAt([]byte{to}, 0)
	}
	if err != nil || is[0] != from {
		t.Errorf("%s begins with %q instead of %q, the copy began anew: %v", file, is, from, err)
	}
}

// passes reports whether csi-provisioner asks again, and deletes the volume if its claim goes meanwhile.
func passes(err error) bool {
	return status.Code(err) == codes.Aborted || status.Code(err) == codes.Unavailable
}

// createCopy makes a copy, and asks again while its data is on its way, as csi-provisioner does.
func (w *world) createCopy(t *testing.T, q *pb.CreateVolumeRequest) {
	t.Helper()
	harness.Eventually(t, "the copy is whole", func(ctx context.Context) error {
		_, err := w.controller.CreateVolume(ctx, q)
		if err != nil && !passes(err) {
			t.Fatal(err)
		}
		return err
	})
}

// snapshot makes one that is ready.
func (w *world) snapshot(t *testing.T, of string) (id string) {
	t.Helper()
	harness.Eventually(t, "a snapshot of "+of, func(ctx context.Context) error {
		answer, err := w.controller.CreateSnapshot(ctx, &pb.CreateSnapshotRequest{Name: "of-" + of, SourceVolumeId: of})
		if err == nil && !answer.GetSnapshot().GetReadyToUse() {
			err = fmt.Errorf("%v", answer)
		}
		id = answer.GetSnapshot().GetSnapshotId()
		return err
	})
	return id
}

// deleteSnapshot deletes one, and asks again while the end of a copy of it has not come to its node.
func (w *world) deleteSnapshot(t *testing.T, id string) {
	t.Helper()
	harness.Eventually(t, "snapshot "+id+" is deleted", func(ctx context.Context) error {
		_, err := w.controller.DeleteSnapshot(ctx, &pb.DeleteSnapshotRequest{SnapshotId: id})
		return err
	})
	for name, p := range w.nodes {
		if p.has(id) {
			t.Errorf("%s has %s, which was deleted", name, id)
		}
	}
}
