package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every Go tool must be pinned by the go.mod that the catalog names, or a fresh clone cannot build it.
func TestCatalogIsPinned(t *testing.T) {
	for name, tool := range goTools() {
		t.Run(name, func(t *testing.T) {
			version, err := tool.version(t.Context(), filepath.Join("..", tool.module))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(version, "v") {
				t.Errorf("version of %s is %q, want a module version", name, version)
			}
		})
	}
}

func TestUnpinnedToolNamesTheRemedy(t *testing.T) {
	_, err := goTool{module: ".", pkg: "example.org/absent/cmd/x"}.version(t.Context(), "..")
	if err == nil || !strings.Contains(err.Error(), "go get -tool example.org/absent/cmd/x") {
		t.Errorf("error is %v, want the command that pins the tool", err)
	}
}

func TestBuiltToolIsNotBuiltAgain(t *testing.T) {
	cache := t.TempDir()
	tool := goTools()["helm4"]
	version, err := tool.version(t.Context(), filepath.Join("..", tool.module))
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(cache, "tools", "helm-"+version, "helm")
	if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{want: "built before", want + madeWith: tool.flags(version)} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := tool.provide(t.Context(), "..", cache)
	if err != nil || got != want {
		t.Fatalf("provide = %q, %v; want the tool that is there: %q", got, err, want)
	}
	if content, _ := os.ReadFile(want); string(content) != "built before" {
		t.Error("the tool that was there has been replaced")
	}
}

// TestToolIsBuiltAgainForOtherFlags, and for another Go: what is there was made with something else.
func TestToolIsBuiltAgainForOtherFlags(t *testing.T) {
	cache := t.TempDir()
	tool := goTools()["benchstat"]
	version, err := tool.version(t.Context(), "..")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(cache, "tools", "benchstat-"+version, "benchstat")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		t.Fatal(err)
	}
	old := "go1.1 " + tool.ldflags(version)
	for file, text := range map[string]string{binary: "built before", binary + madeWith: old} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time it is there
		if _, err := tool.provide(t.Context(), "..", cache); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(binary); err != nil || info.Size() < 1<<20 {
			t.Fatalf("what was built with another Go is still there: %v, %v", info, err)
		}
	}
}

func TestUnknownNameListsTheCatalog(t *testing.T) {
	err := run(t.Context(), []string{"-dir", "..", "golangci"}, os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "golangci-lint") {
		t.Errorf("error is %v, want one that lists the known names", err)
	}
}
