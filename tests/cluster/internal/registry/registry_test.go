package registry_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/registry"
)

// containerd's hosts.md says what these keys mean; "push" is left out so that
// no node ever writes.
func TestHostsNamesTheClustersRegistry(t *testing.T) {
	want := "[host.\"http://c-registry:5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
	if got := registry.Hosts("c"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
