package app_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/app"
)

// TestMigrateRefuses: a wrong command line asks nobody anything.
func TestMigrateRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--from nfs --pool local":                                     "local-path",
		"--from openebs --pool local data -A":                         "--all-namespaces",
		"--from openebs --pool local --replace-class":                 "--finish",
		"--from openebs --pool local --enforce soon":                  "later",
		"--from openebs --pool local --apply --undo":                  "apply undo",
		"--from openebs":                                              "pool",
		"--from openebs --pool local --kubeconfig /nowhere --context": "context",
	} {
		var stderr bytes.Buffer
		code := app.Run(append([]string{"migrate"}, strings.Fields(args)...), nil, &bytes.Buffer{}, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: code %d, %s; want %q", args, code, stderr.String(), want)
		}
	}
}
