package volume_test

import (
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

const volumesPath = poolPath + "/csi/" + disk.VolumesDir

// TestRecoveryPassesOverForeignNames among the records.
func TestRecoveryPassesOverForeignNames(t *testing.T) {
	d := newDisk()
	withVolume(t, warm(t, d))
	foreign := []string{".hidden", "..json.tmp", "README", "a b.json", "x.json.tmp"}
	for _, name := range foreign {
		d.AddFile(volumesPath+"/"+name, []byte("{"))
	}
	want := slices.Sorted(slices.Values(append(foreign, "pvc-1.json")))
	if got := warm(t, d).ls(t, disk.VolumesDir); !slices.Equal(got, want) {
		t.Errorf("among the records are %v, want %v", got, want)
	}
}

// TestRecoveryKeepsTheOnlyRecordOfData, which has lost its name, as it may where a filesystem was repaired.
func TestRecoveryKeepsTheOnlyRecordOfData(t *testing.T) {
	d := newDisk()
	withVolume(t, warm(t, d))
	d.AddFile(poolPath+"/csi/pvc-2/precious", []byte("kept"))
	d.AddFile(volumesPath+"/.pvc-2.json.tmp", []byte("{"))
	if got := warm(t, d).ls(t, disk.VolumesDir); !slices.Equal(got, []string{".pvc-2.json.tmp", "pvc-1.json"}) {
		t.Errorf("among the records are %v", got)
	}
}

// TestRecordThatCannotBeRemovedHarmsNothing: it has no name yet, so nobody takes it for a record.
func TestRecordThatCannotBeRemovedHarmsNothing(t *testing.T) {
	d := newDisk()
	withVolume(t, warm(t, d))
	d.AddFile(volumesPath+"/.pvc-2.json.tmp", []byte("{"))
	d.SetReadOnly(poolPath, true)
	d.SetSpace(poolPath, disk.Space{Size: 1 << 30, Free: 1 << 30, ReadOnly: true})
	n := warm(t, d)
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	d.SetReadOnly(poolPath, false)
	d.SetSpace(poolPath, disk.Space{Size: 1 << 30, Free: 1 << 30})
	mustCreate(t, n, "pvc-2")
	n.consistent(t, "the volume of that record is made")
}
