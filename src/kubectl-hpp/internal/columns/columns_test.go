package columns_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/columns"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/inventory"
)

// TestNameOfVolume: an orphan is named by what adopt and discard take, also one whose claim has the volume elsewhere.
func TestNameOfVolume(t *testing.T) {
	for want, v := range map[string]inventory.Volume{
		"persistentvolumeclaim/data": {ID: "bound", Claim: "data", PV: "bound", State: facts.OK},
		"inline":                     {ID: "inline", Claim: "pod", State: facts.OK},
		"left":                       {ID: "left", Claim: "data", State: facts.Orphan},
		"copy":                       {ID: "copy", Claim: "data", PV: "copy", State: facts.Orphan},
	} {
		if got := columns.NameOfVolume(v); got != want {
			t.Errorf("%+v is named %s, want %s", v, got, want)
		}
	}
}
