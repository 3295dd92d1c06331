package volume_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestRecoveryRemovesRecordsWithoutANameOnly: what else lies among the records is not the driver's.
func TestRecoveryRemovesRecordsWithoutANameOnly(t *testing.T) {
	disk := newDisk(t)
	withVolume(t, disk)
	foreign := []string{".hidden", ".notes.tmp", "..json.tmp", "pvc-3.json.tmp", ".pvc-4.json.tmp~"}
	for _, name := range slices.Concat(foreign, []string{".pvc-1.json.tmp", ".pvc-2.json.tmp"}) {
		disk.AddFile(poolPath+"/csi/"+poolfs.VolumesDir+"/"+name, []byte("{"))
	}
	want := slices.Sorted(slices.Values(append(foreign, "pvc-1.json")))
	if got := warm(t, disk).ls(t, poolfs.VolumesDir); !slices.Equal(got, want) {
		t.Errorf("among the records are %v, want %v", got, want)
	}
}

// TestRecoveryKeepsTheOnlyRecordOfData, which has lost its name, as it may where a filesystem was repaired.
func TestRecoveryKeepsTheOnlyRecordOfData(t *testing.T) {
	disk := newDisk(t)
	withVolume(t, disk)
	disk.AddFile(poolPath+"/csi/pvc-2/precious", []byte("kept"))
	disk.AddFile(poolPath+"/csi/"+poolfs.VolumesDir+"/.pvc-2.json.tmp", []byte("{"))
	if got := warm(t, disk).ls(t, poolfs.VolumesDir); !slices.Equal(got, []string{".pvc-2.json.tmp", "pvc-1.json"}) {
		t.Errorf("among the records are %v", got)
	}
}

// TestRecordThatCannotBeRemovedHarmsNothing: it has no name yet, so nobody takes it for a record.
func TestRecordThatCannotBeRemovedHarmsNothing(t *testing.T) {
	disk := newDisk(t)
	withVolume(t, disk)
	disk.AddFile(poolPath+"/csi/"+poolfs.VolumesDir+"/.pvc-2.json.tmp", []byte("{"))
	disk.SetReadOnly(poolPath, true)
	n := warm(t, disk)
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Errorf("read-only: %v", err)
	}
	disk.SetReadOnly(poolPath, false)
	mustCreate(t, n, "pvc-2")
	n.consistent(t, "the volume of that record is made")
}

// TestRecoveryWaitsForCreatesUnderWay: it would take their records for interrupted ones.
func TestRecoveryWaitsForCreatesUnderWay(t *testing.T) {
	disk := newDisk(t)
	warm(t, disk)
	disk.AddFile(poolPath+"/csi/foreign/precious", []byte("kept")) // while the API is silent, the pool is recovered again and again
	n := start(t, disk, withCluster(&cluster{err: fmt.Errorf("%w: connection refused", volume.ErrClusterUnknown)}))
	real := n.pool(t)
	made, recovered := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(recovered)
		for {
			n.clock.advance(time.Hour)
			real.Check(t.Context())
			select {
			case <-made:
				return
			default:
			}
		}
	}()
	var creates sync.WaitGroup
	for i := range 100 {
		creates.Go(func() {
			if _, err := n.Create(t.Context(), spec(fmt.Sprintf("pvc-%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	creates.Wait()
	close(made)
	<-recovered
	if got := len(n.records(t)); got != 100 {
		t.Errorf("%d records, want 100", got)
	}
}
