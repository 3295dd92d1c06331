package compile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
)

// module is a program that prints a variable the linker may set.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example\n\ngo 1.26.0\n",
		"main.go": "package main\n\nvar version = \"none\"\n\nfunc main() { println(version) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRunIsReproducibleAndSetsTheVersion(t *testing.T) {
	var binaries [][]byte
	for range 2 {
		output := filepath.Join(t.TempDir(), "out", "example")
		err := compile.Run(t.Context(), compile.Target{
			Dir: module(t), Package: ".", OS: "linux", Arch: "arm64", Ldflags: []string{"-X", "main.version=v9-test"},
			Output: output,
		})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		binaries = append(binaries, raw)
	}
	if !bytes.Equal(binaries[0], binaries[1]) {
		t.Error("two builds in two folders differ")
	}
	if !bytes.Contains(binaries[0], []byte("v9-test")) {
		t.Error("the version is not in the binary")
	}
}

func TestRunReturnsTheCompilersWords(t *testing.T) {
	dir := module(t)
	if err := os.WriteFile(
		filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { nonsense() }\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	err := compile.Run(t.Context(), compile.Target{
		Dir: dir, Package: ".", OS: "linux", Arch: "amd64", Output: filepath.Join(dir, "x"),
	})
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("error %v, want the compiler's words", err)
	}
}
