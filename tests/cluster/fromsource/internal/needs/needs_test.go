package needs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/needs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/preflight"
)

// without is a PATH that lacks some programs.
func without(names ...string) func(string) (string, error) {
	return func(name string) (string, error) {
		if slices.Contains(names, name) {
			return "", exec.ErrNotFound
		}
		return "/usr/bin/" + name, nil
	}
}

func TestCheckNamesWhatIsMissingAndTheRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*preflight.Host)
		want     string
		packages []string
	}{
		"nothing missing": {func(*preflight.Host) {}, "", nil},
		"apt can help": {
			func(h *preflight.Host) { h.LookPath = without("debootstrap") }, "", []string{"debootstrap"},
		},
		"nothing to check signatures with": {
			func(h *preflight.Host) {
				h.LookPath, h.Exists = without("gpgv"), func(string) bool { return false }
			}, "", []string{"gpgv", "debian-archive-keyring"},
		},
		"no apt": {
			func(h *preflight.Host) { h.LookPath = without("debootstrap", "apt-get") },
			"debootstrap is missing and there is no apt-get",
			[]string{"debootstrap"},
		},
		"not root": {func(h *preflight.Host) { h.UID = 1000 }, "needs root", nil},
		"macOS":    {func(h *preflight.Host) { h.OS = "darwin" }, "on Linux only, this is darwin", nil},
		"little memory": {
			func(h *preflight.Host) { h.Memory = func() (uint64, error) { return 2 << 30, nil } },
			"only 2 GiB of memory are available, and compiling Kubernetes takes 5 GiB",
			nil,
		},
		"little disk": {
			func(h *preflight.Host) { h.Free = func(string) (uint64, error) { return 10 << 30, nil } },
			"only 10 GiB are free in /cache, and 20 GiB are needed",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := preflight.Host{
				LookPath: without(),
				Exists:   func(string) bool { return true },
				Free:     func(string) (uint64, error) { return 100 << 30, nil },
				Memory:   func() (uint64, error) { return 32 << 30, nil },
				OS:       "linux",
			}
			test.change(&h)
			packages, err := needs.Check(h, "/cache")
			if !slices.Equal(packages, test.packages) {
				t.Errorf("packages %v, want %v", packages, test.packages)
			}
			said := ""
			if err != nil {
				said = err.Error()
			}
			if (said == "") != (test.want == "") || !strings.Contains(said, test.want) || strings.Contains(said, "\n") {
				t.Errorf("%v, want one line that says %q", err, test.want)
			}
		})
	}
}
