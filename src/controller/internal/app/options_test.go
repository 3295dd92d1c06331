package app_test

import (
	"slices"
	"strings"
	"testing"
)

// TestTheControllerRefusesToStart: it says all that it wants, and nothing that only a node needs.
func TestTheControllerRefusesToStart(t *testing.T) {
	m := newMachine(t, onePool)
	args := []string{
		"--mode=controller", "--state-dir=" + m.path("state"), "--config=" + m.path("config.yaml"),
		"--node-name=", "--host-root=host", "--kubelet-dir=/",
	}
	wrong := []string{
		"--tunnel-address=7443", "--serving-name=a_b", "--certificates=none", "--node-pods=a b", "--node-grace=0s",
		"--node-gone-after=0s", "--orphan-age=-1h", "--certificate-interval=0s", "--log-level=loud",
	}
	out, err := m.run(t, append(args, wrong...)...)
	if err == nil {
		t.Fatalf("it ran: %s", out)
	}
	var said []string
	for line := range strings.Lines(out) {
		if option, _, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(option, "--") {
			said = append(said, option)
		}
	}
	want := []string{
		"--log-level or --log-format", "--pod-namespace", "--pod-name", "--tunnel-address", "--serving-name",
		"--certificates", "--certificate-secret", "--controller-ca", "--shared-pools", "--node-service-account",
		"--node-pods", "--node-grace", "--node-gone-after", "--orphan-age", "--certificate-interval",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it names %q, want %q:\n%s", said, want, out)
	}
	out, err = m.run(t, append(args, "--standalone")...)
	if err == nil || !strings.Contains(out, "without --standalone") {
		t.Errorf("without an API: %v: %s", err, out)
	}
}
