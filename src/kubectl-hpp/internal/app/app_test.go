package app

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestWithoutController: who wants something of it is told where to look, and who has no kubeconfig, how to name one.
func TestWithoutController(t *testing.T) {
	is := newInstallation()
	is.withoutController()
	if _, err, code := is.run(t, "shop", "undelete", "data"); code != 1 ||
		!strings.Contains(err, "no controller can be asked") || !strings.Contains(err, "`kubectl hpp doctor`") {
		t.Errorf("undelete: %d, %s", code, err)
	}
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("HOME", t.TempDir())
	var err bytes.Buffer
	if code := Run([]string{"status"}, nil, io.Discard, &err); code != 1 ||
		!strings.Contains(err.String(), "name yours by KUBECONFIG or --kubeconfig") {
		t.Errorf("without a kubeconfig: %d, %s", code, &err)
	}
}
