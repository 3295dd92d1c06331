package gobuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
)

func TestReplacesNamesTheStagingModulesAlone(t *testing.T) {
	const goMod = `module k8s.io/kubernetes

require k8s.io/single v0.0.0

require (
	github.com/spf13/cobra v1.10.2
	k8s.io/api v0.0.0
	k8s.io/kubelet v0.0.0 // indirect
	k8s.io/klog/v2 v2.140.0
	example.com/other v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
`
	want := `
replace k8s.io/single => k8s.io/single v0.37.1

replace k8s.io/api => k8s.io/api v0.37.1

replace k8s.io/kubelet => k8s.io/kubelet v0.37.1
`
	if diff := cmp.Diff(want, Replaces(goMod, "v0.37.1")); diff != "" {
		t.Errorf("replace lines (-want +got):\n%s", diff)
	}
}

func TestFollowCountsAndKeepsTheEnd(t *testing.T) {
	var said string
	tail := follow(strings.NewReader("go: downloading a\nstd/x\nstd/y\nx.go:1: broken\n"), func(s string) { said = s })
	if want := "1 modules downloaded, 3 packages compiled"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if len(tail) == 0 || tail[len(tail)-1] != "x.go:1: broken" {
		t.Errorf("the compiler's last words are lost: %q", tail)
	}
}

func TestNameAfterProgramWantsOneBinary(t *testing.T) {
	dir, p := t.TempDir(), programs.Program{Name: "etcd"}
	if err := nameAfterProgram(dir, p); err == nil {
		t.Error("no error for a folder without a binary")
	}
	if err := os.WriteFile(filepath.Join(dir, "server"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := nameAfterProgram(dir, p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
		t.Error(err)
	}
}
