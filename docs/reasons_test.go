package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var camelCase = regexp.MustCompile(`^([A-Z][a-z]+)+$`)

// TestReasonsPages: the pages name every condition, event and reason of the code, and no other. In the code each is a
// string in CamelCase; what else is one, there or on the pages, is in others.
func TestReasonsPages(t *testing.T) {
	for _, test := range []struct {
		pages, code []string
		others      string
	}{{
		pages: []string{"reference/events.md", "reference/driver.md"},
		code: []string{
			"../src/api/names", "../src/controller/internal", "../src/driver/internal",
			"../src/internal/nodeapi/reasons.go",
		},
		others: "Accept Authorization DataLoss Degraded Ephemeral FailedMount FailedScheduling False Healthy " +
			"Inaccessible Node Normal PersistentVolume PersistentVolumeClaim ProvisioningFailed True Unknown " +
			"VolumeResizeFailed Warning",
	}, {
		pages: []string{"reference/operator.md"},
		code: []string{
			"../src/api/v1beta1/status.go", "../src/operator/internal/controller", "../src/operator/internal/gates",
			"../src/operator/internal/status",
		},
		others: "ContainerCreating DaemonSet Deployment False HostPathProvisioner List PodInitializing Reconcile " +
			"Released Retain Snapshotting True Unauthorized",
	}} {
		told, made := map[string]bool{}, map[string]bool{}
		for _, page := range test.pages {
			text, err := pages.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			addCamelCase(told, Code(string(text))...)
		}
		for _, root := range test.code {
			if err := addLiterals(made, root); err != nil {
				t.Fatal(err)
			}
		}
		for other := range strings.FieldsSeq(test.others) {
			if !told[other] && !made[other] {
				t.Errorf("%s of others is nowhere", other)
			}
			delete(told, other)
			delete(made, other)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(told))); diff != "" {
			t.Errorf("words of the code alone (-) and of %q alone (+):\n%s", test.pages, diff)
		}
	}
}

// addLiterals adds what is a string in CamelCase in a source file, or in all of a directory.
func addLiterals(to map[string]bool, root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				addCamelCase(to, strings.Trim(literal.Value, `"`))
			}
			return true
		})
		return nil
	})
}

func addCamelCase(to map[string]bool, words ...string) {
	for _, word := range words {
		if camelCase.MatchString(word) {
			to[word] = true
		}
	}
}
