package driverrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/driverd"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pooldir"
)

// subject is one driver under test with the volumes that were made through it.
type subject struct {
	*driverd.Driver
	volumes int // in its pool before the test
	made    atomic.Int64
	ids     []string // made by create, not yet deleted
}

// target is where the pods of the test would have their volumes.
func (s *subject) target(id string) string { return filepath.Join(s.Kubelet(), "pods", id, "mount") }

func (s *subject) nextID() string {
	return fmt.Sprintf("pvc-11111111-0000-4000-8000-%012d", s.made.Add(1))
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
	}
}

func (s *subject) create(ctx context.Context, id string) error {
	return s.createOf(ctx, id, pooldir.Bytes)
}

func (s *subject) createOf(ctx context.Context, id string, bytes int64) error {
	return s.createFrom(ctx, id, bytes, nil)
}

func (s *subject) createFrom(ctx context.Context, id string, bytes int64, source *csi.VolumeContentSource) error {
	_, err := s.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:                id,
		CapacityRange:       &csi.CapacityRange{RequiredBytes: bytes},
		VolumeContentSource: source,
		VolumeCapabilities:  []*csi.VolumeCapability{capability()},
		Parameters: map[string]string{ // what external-provisioner sends with --extra-create-metadata
			"storagePool":                      s.Pool,
			"csi.storage.k8s.io/pvc/name":      "data-database-0",
			"csi.storage.k8s.io/pvc/namespace": "default",
			"csi.storage.k8s.io/pv/name":       id,
		},
	})
	return err
}

// snapshot makes a snapshot of a volume, which the filesystem does at once.
func (s *subject) snapshot(ctx context.Context, volume string) (*csi.Snapshot, error) {
	answer, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
		Name:           fmt.Sprintf("snapshot-11111111-0000-4000-8000-%012d", s.made.Add(1)),
		SourceVolumeId: volume,
	})
	if err == nil && !answer.GetSnapshot().GetReadyToUse() {
		err = fmt.Errorf("the snapshot of %s was not ready at once", volume)
	}
	return answer.GetSnapshot(), err
}

// createWhole makes a copy, and asks again until its data is there, for which the driver waits.
func (s *subject) createWhole(ctx context.Context, id string, bytes int64, source *csi.VolumeContentSource) error {
	for {
		err := s.createFrom(ctx, id, bytes, source)
		if status.Code(err) != codes.Aborted {
			return err
		}
		time.Sleep(10 * time.Millisecond) // it does not wait while it makes the copy durable
	}
}

// purged waits until what was deleted is gone, so that nothing is timed beside that.
func (s *subject) purged(ctx context.Context) error {
	return s.Until(ctx, "has purged its trash", func() error {
		left, err := filepath.Glob(filepath.Join(s.Path, "csi", ".hpp", "trash", "[^.]*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d entries are left", len(left))
		}
		return err
	})
}

func (s *subject) remove(ctx context.Context, id string) error {
	_, err := s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

func (s *subject) publish(ctx context.Context, id string) error {
	_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: id, TargetPath: s.target(id), VolumeCapability: capability(),
		VolumeContext: map[string]string{"storagePool": s.Pool},
	})
	return err
}

func (s *subject) unpublish(ctx context.Context, id string) error {
	_, err := s.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: s.target(id)})
	return err
}

func (s *subject) stats(ctx context.Context, id string) error {
	_, err := s.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: s.target(id)})
	return err
}

// timed runs do n times in a row and gives what each took.
func timed(n int, do func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for i := range n {
		start := time.Now()
		if err := do(i); err != nil {
			return took, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// createMany makes n volumes one after the other.
func (s *subject) createMany(ctx context.Context, n int) ([]time.Duration, error) {
	return timed(n, func(int) error {
		id := s.nextID()
		if err := s.create(ctx, id); err != nil {
			return err
		}
		s.ids = append(s.ids, id)
		return nil
	})
}

// repeat asks n times for a volume that is there already.
func (s *subject) repeat(ctx context.Context, n int) ([]time.Duration, error) {
	id := s.ids[len(s.ids)-1]
	return timed(n, func(int) error { return s.create(ctx, id) })
}

// empty asks n times for what needs no disk.
func (s *subject) empty(ctx context.Context, n int) ([]time.Duration, error) {
	return timed(n, func(int) error {
		_, err := s.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
		return err
	})
}

// createParallel makes n volumes with so many clients at once; all is how long it took together.
func (s *subject) createParallel(
	ctx context.Context, n, clients int,
) (each []time.Duration, all time.Duration, err error) {
	var group errgroup.Group
	start, ids, took := time.Now(), make([][]string, clients), make([][]time.Duration, clients)
	for i := range clients {
		group.Go(func() (err error) {
			took[i], err = timed(n/clients, func(int) error {
				id := s.nextID()
				ids[i] = append(ids[i], id)
				return s.create(ctx, id)
			})
			return err
		})
	}
	err = group.Wait()
	s.ids = append(s.ids, slices.Concat(ids...)...)
	return slices.Concat(took...), time.Since(start), err
}

// publishMany publishes and unpublishes the first n volumes made, each in turn.
func (s *subject) publishMany(ctx context.Context, n int) (up, down []time.Duration, err error) {
	for _, id := range s.ids[:n] {
		if err := s.makeParent(id); err != nil {
			return up, down, err
		}
		start := time.Now()
		if err := s.publish(ctx, id); err != nil {
			return up, down, err
		}
		up = append(up, time.Since(start))
		start = time.Now()
		if err := s.unpublish(ctx, id); err != nil {
			return up, down, err
		}
		down = append(down, time.Since(start))
	}
	return up, down, nil
}

// statsMany asks n times for the use of one published volume.
func (s *subject) statsMany(ctx context.Context, n int) (took []time.Duration, err error) {
	id := s.ids[0]
	err = s.whilePublished(ctx, id, func(string) error {
		took, err = timed(n, func(int) error { return s.stats(ctx, id) })
		return err
	})
	return took, err
}

// whilePublished does something with the bind mount of a volume.
func (s *subject) whilePublished(ctx context.Context, id string, do func(target string) error) error {
	if err := s.makeParent(id); err != nil {
		return err
	}
	if err := s.publish(ctx, id); err != nil {
		return err
	}
	return errors.Join(do(s.target(id)), s.unpublish(ctx, id))
}

// makeParent makes the directory of the target, as the kubelet does.
func (s *subject) makeParent(id string) error {
	if err := os.MkdirAll(filepath.Dir(s.target(id)), 0o750); err != nil {
		return fmt.Errorf("make the target's parent: %w", err)
	}
	return nil
}

// take gives the last n volumes made, for deletion.
func (s *subject) take(n int) []string {
	ids := s.ids[len(s.ids)-n:]
	s.ids = s.ids[:len(s.ids)-n]
	return ids
}

// deleteMany deletes n volumes with one file each.
func (s *subject) deleteMany(ctx context.Context, n int) ([]time.Duration, error) {
	ids := s.take(n)
	for _, id := range ids {
		if err := os.WriteFile(filepath.Join(pooldir.Data(s.Path, id), "file"), []byte("x"), 0o600); err != nil {
			return nil, fmt.Errorf("put a file into a volume: %w", err)
		}
	}
	return timed(n, func(i int) error { return s.remove(ctx, ids[i]) })
}

// deleteFull makes n volumes with many files each and, after a pause, deletes them.
func (s *subject) deleteFull(ctx context.Context, n, files int, pause func() error) ([]time.Duration, error) {
	t, ids := tree{files: files}, make([]string, n)
	for i := range ids {
		ids[i] = s.nextID()
		if err := s.createOf(ctx, ids[i], t.room()); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if err := pooldir.Fill(pooldir.Data(s.Path, id), files, 0); err != nil {
			return nil, err
		}
	}
	if err := pause(); err != nil {
		return nil, err
	}
	return timed(n, func(i int) error { return s.remove(ctx, ids[i]) })
}
