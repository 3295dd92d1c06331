package programs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
)

func TestKeySeparatesItsParts(t *testing.T) {
	if a, b := programs.Key("ab", "c"), programs.Key("a", "bc"); a == b {
		t.Errorf("two lists that join to the same text have one key: %s", a)
	}
	if got := programs.Key("a"); !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("key %q, want twelve hexadecimal digits", got)
	}
}

func TestStagingVersionFollowsKubernetes(t *testing.T) {
	p := programs.Kubernetes()
	want := "v0." + strings.TrimPrefix(p.Version, "v1.")
	if p.StagingVersion != want {
		t.Errorf("staging modules at %s with Kubernetes %s, want %s", p.StagingVersion, p.Version, want)
	}
	if !strings.Contains(p.Ldflags, "gitVersion="+p.Version) || !strings.Contains(p.Ldflags, "gitMajor=1 ") {
		t.Errorf("kubeadm would not know its version: %s", p.Ldflags)
	}
}

func TestProgramsHaveKeysOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range []programs.Program{
		programs.Kubernetes(), programs.Etcd(), programs.Containerd(),
		programs.CoreDNS(), programs.CSIProvisioner(), programs.CSIResizer(), programs.CSISnapshotter(),
		programs.SnapshotController(),
		programs.CertManager(), programs.E2ESuite(),
	} {
		if seen[p.Key()] || !strings.Contains(p.Key(), p.Version) {
			t.Errorf("cache key %q of %s: want one of its own, with its version", p.Key(), p.Name)
		}
		seen[p.Key()] = true
	}
}

// TestKeyHoldsEverythingThatABinaryIsMadeFrom: with the old key a changed flag would keep the old binary.
func TestKeyHoldsEverythingThatABinaryIsMadeFrom(t *testing.T) {
	base := programs.Program{Name: "p", Module: "m", Version: "v1.0.0", Packages: []string{"m/a"}}
	for name, change := range map[string]func(*programs.Program){
		"tags":     func(p *programs.Program) { p.Tags = "x" },
		"ldflags":  func(p *programs.Program) { p.Ldflags = "x" },
		"packages": func(p *programs.Program) { p.Packages = []string{"m/a", "m/b"} },
		"tests":    func(p *programs.Program) { p.Tests = []string{"m/test"} },
		"module":   func(p *programs.Program) { p.Module = "n" },
		"staging":  func(p *programs.Program) { p.StagingVersion = "v0.1.0" },
	} {
		p := base
		change(&p)
		if p.Key() == base.Key() {
			t.Errorf("another value of %s has the same key %s", name, p.Key())
		}
	}
}
