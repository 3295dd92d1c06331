package driverrun

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/driverd"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/machine"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pooldir"
)

// TestDriverTakesAPreMadePool is what all figures with many volumes rest on: the driver takes the pool that pooldir
// writes for one of its own, with every volume in it.
func TestDriverTakesAPreMadePool(t *testing.T) {
	const volumes = 25
	root, err := machine.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary, err := driverd.Build(t.Context(), root, dir)
	if err != nil {
		t.Fatal(err)
	}
	path, work := filepath.Join(dir, "pool"), filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := pooldir.Make(pooldir.Pool{Path: path, Name: "some", Volumes: volumes}); err != nil {
		t.Fatal(err)
	}
	d, err := driverd.Start(t.Context(), driverd.Options{Binary: binary, Pool: "some", Path: path, Work: work})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := d.Recovered(t.Context(), pooldir.VolumeID(volumes-1)); err != nil {
		t.Fatal(err)
	}
	all, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(all.GetEntries()); got != volumes {
		t.Errorf("the driver knows %d volumes, want %d\n%s", got, volumes, d.Log())
	}
	s := &subject{Driver: d, volumes: volumes}
	if _, err := s.createMany(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pooldir.Data(path, s.ids[1])); err != nil {
		t.Errorf("a new volume is not where pre-made ones are: %v", err)
	}
	if _, err := s.deleteFull(t.Context(), 1, 1500, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if rss, err := d.RSS(); err != nil || rss < 1<<20 {
		t.Errorf("RSS %d, %v", rss, err)
	}
	if _, err := d.CPU(); err != nil {
		t.Error(err)
	}
}
