package app_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/app"
)

// TestTheControllerRefusesToStart: it says all that it wants.
func TestTheControllerRefusesToStart(t *testing.T) {
	args := []string{
		"--state-dir=" + t.TempDir(),
		"--tunnel-address=7443", "--serving-name=a_b", "--certificates=none", "--node-pods=a b", "--node-grace=0s",
		"--node-gone-after=0s", "--orphan-age=-1h", "--certificate-interval=0s", "--log-level=loud",
	}
	var stderr strings.Builder
	if code := app.Run(args, func(string) string { return "" }, io.Discard, &stderr); code == 0 {
		t.Fatal("it ran")
	}
	out := stderr.String()
	var said []string
	for line := range strings.Lines(strings.TrimPrefix(out, "controller: ")) {
		if option, _, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(option, "--") {
			said = append(said, option)
		}
	}
	want := []string{
		"--log-level or --log-format", "--pod-namespace", "--pod-name", "--tunnel-address", "--serving-name",
		"--certificates", "--certificate-secret", "--controller-ca", "--shared-pools", "--moves", "--lease",
		"--node-service-account",
		"--node-pods", "--node-grace", "--node-gone-after", "--orphan-age", "--certificate-interval",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it names %q, want %q:\n%s", said, want, out)
	}
}
