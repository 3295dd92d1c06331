package hostpathpv_test

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// TestWarnOfOthers where somebody else may exchange what is in a directory. Needs root.
func TestWarnOfOthers(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		owner int
		warns bool
	}{
		{0o755, 0, false},
		{0o777 | os.ModeSticky, 0, false},
		{0o775, 0, true},
		{0o757, 0, true},
		{0o700, 1000, true},
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, test.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, test.owner, 0); err != nil {
			t.Fatalf("give a directory away (this test needs root): %v", err)
		}
		d, err := hostpathpv.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		hostpathpv.WarnOfOthers(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), d.File)
		if warned := log.Len() > 0; warned != test.warns {
			t.Errorf("mode %v, owner %d: logged %q", test.mode, test.owner, log.String())
		}
		d.Close()
	}
}
