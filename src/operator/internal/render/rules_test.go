package render_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec/poolspectest"
)

// TestClassesWithAPoolAreRendered: those of the base values, by the rule that the driver has.
func TestClassesWithAPoolAreRendered(t *testing.T) {
	t.Parallel()
	for _, c := range poolspectest.Read(t).DefaultPool {
		var spec v1beta1.HostPathProvisionerSpec
		for _, name := range c.Pools {
			spec.StoragePools = append(spec.StoragePools, v1beta1.StoragePool{Name: name, Path: "/srv/" + name})
		}
		class := "storageClasses: [{name: a}]"
		if c.Named != "" {
			class = fmt.Sprintf("storageClasses: [{name: a, storagePool: %s}]", c.Named)
		}
		result := mustRender(t, input(class, spec))
		if got := slices.Contains(listed(result), "StorageClass/a"); got != c.Served() {
			t.Errorf("a class of %q with the pools %q is rendered: %v", c.Named, c.Pools, got)
		}
	}
}

// TestClassesWithSeveralPoolsAreRendered: by the rule that driver and chart have.
func TestClassesWithSeveralPoolsAreRendered(t *testing.T) {
	t.Parallel()
	for _, c := range poolspectest.Read(t).Several {
		var spec v1beta1.HostPathProvisionerSpec
		data, err := json.Marshal(map[string]any{"storagePools": c.Entries()})
		if err == nil {
			err = json.Unmarshal(data, &spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		result := mustRender(t, input(fmt.Sprintf("storageClasses: [{name: a, storagePool: %q}]", c.Named), spec))
		if got := slices.Contains(listed(result), "StorageClass/a"); got != (c.Refused == "") {
			t.Errorf("a class of %q with the pools %s is rendered: %v", c.Named, data, got)
		}
		if left := strings.Join(result.NotServed, "; "); !strings.Contains(left, c.Refused) {
			t.Errorf("a class of %q with the pools %s is left out: %q, want %q", c.Named, data, left, c.Refused)
		}
	}
}

// TestPoolsBesideTheStateDirectory: by the rule that the driver has.
func TestPoolsBesideTheStateDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range poolspectest.Read(t).Clash {
		spec := v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{{Name: "a", Path: c.Path}}}
		result := mustRender(t, input(fmt.Sprintf("driver: {stateDir: %q}", c.Directory), spec))
		clash := strings.Contains(strings.Join(result.Violations, "\n"), "lie in one another")
		if clash != c.Clash {
			t.Errorf("a pool at %s beside %s: %q", c.Path, c.Directory, result.Violations)
		}
	}
}
