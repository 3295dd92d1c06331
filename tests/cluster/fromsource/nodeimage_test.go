package fromsource

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/nodeimage"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
)

func TestWantedFollowsTheVariable(t *testing.T) {
	for _, test := range []struct {
		value        string
		unprivileged bool
		want         string
	}{
		{"", false, versions.PublicNodeImage},
		{"", true, ""},
		{"source", false, ""},
		{"kindest/node:v1.34.0", false, "kindest/node:v1.34.0"},
		{"kindest/node:v1.34.0", true, "kindest/node:v1.34.0"},
	} {
		t.Setenv(Variable, test.value)
		if got := wanted(test.unprivileged); got != test.want {
			t.Errorf("%s=%q, unprivileged %t: %q, want %q", Variable, test.value, test.unprivileged, got, test.want)
		}
	}
}

// TestOnlyBuiltImagesLackANetwork: that of a public one would be replaced.
func TestOnlyBuiltImagesLackANetwork(t *testing.T) {
	if err := PodRoutes(t.Context(), versions.PublicNodeImage, nil, nil); err != nil {
		t.Error(err)
	}
	if !isBuilt(nodeimage.Name()) || Outdated(nodeimage.Name()) || !Outdated(nodeimage.Repository+":v1.2.3-0") {
		t.Errorf("%s is not known as built here, or a built one of another version not as outdated", nodeimage.Name())
	}
	if isBuilt(versions.PublicNodeImage) || Outdated(versions.PublicNodeImage) {
		t.Error("the public image counts as built here")
	}
}
