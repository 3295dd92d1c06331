package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

var (
	fence   = regexp.MustCompile("(?ms)^( *)```(yaml|sh)\n(.*?)^ *```$")
	heredoc = regexp.MustCompile(`(?ms)<<EOF$\n(.*?)^ *EOF$`)
)

// TestYAMLInDocs: objects in the docs decode strictly into their types, and the chart takes the values.
func TestYAMLInDocs(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	all := helmcli.Scheme(t)
	if err := v1beta1.AddToScheme(all); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(all, serializer.EnableStrict).UniversalDeserializer()
	objects, values := 0, 0
	eachYAML(t, func(file, block string) {
		if areValues(t, file, block) {
			values++
			path := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			set := helmcli.Values{Files: []string{path}}
			if strings.HasPrefix(file, "docs/reference/") && !strings.Contains(block, "storageClasses:") {
				set.JSON = map[string]string{"storageClasses": "[]"} // a reference shows one value at a time
			}
			if _, err := helm.Template(t, set); err != nil {
				t.Errorf("%s: the chart refuses these values: %v\n%s", file, err, block)
			}
			return
		}
		for document := range strings.SplitSeq(block, "\n---\n") {
			if !strings.Contains(document, "apiVersion: ") {
				continue // a part of an object
			}
			_, _, err := decoder.Decode([]byte(document), nil, nil)
			if err != nil && !runtime.IsNotRegisteredError(err) { // Flux, Argo CD
				t.Errorf("%s: %v\n%s", file, err, document)
			}
			objects++
		}
	})
	if objects < 10 || values < 12 {
		t.Errorf("%d objects and %d sets of values in the docs: the test does not find them", objects, values)
	}
}

// areValues reports whether a block has values of the chart: all its keys are such, or the block is wrong.
func areValues(t *testing.T, file, block string) bool {
	t.Helper()
	var all, keys map[string]any
	if err := yaml.Unmarshal([]byte(block), &keys); err != nil || keys["apiVersion"] != nil {
		return false // a list, or objects, which the decoder reads
	}
	text, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	known := 0
	for key := range keys {
		if _, is := all[key]; is {
			known++
		}
	}
	if known > 0 && known < len(keys) {
		t.Errorf("%s: some of these are no values of the chart:\n%s", file, block)
	}
	return known > 0
}

// eachYAML calls look with each block of YAML, and with what a shell block hands to kubectl.
func eachYAML(t *testing.T, look func(file, block string)) {
	t.Helper()
	root := os.DirFS(helmcli.Root(t))
	files, err := fs.Glob(root, "docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "README.md", "docs/faq.md") {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			indent, language, content := block[1], block[2], block[3]
			content = strings.ReplaceAll("\n"+content, "\n"+indent, "\n")
			if language == "yaml" {
				look(file, content)
				continue
			}
			for _, document := range heredoc.FindAllStringSubmatch(content, -1) {
				look(file, document[1])
			}
		}
	}
}
