package workflows_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDevicesAreNotCached: a result of Go's cache says nothing about this machine's kernel, mkfs and programs. The
// Makefile lists the packages of the root module whose tests touch these; all others of the module may be cached.
func TestDevicesAreNotCached(t *testing.T) {
	makefile := strings.ReplaceAll(read(t, root+"/Makefile"), "\\\n", "")
	list := regexp.MustCompile(`(?m)^DEVICES := \$\(addprefix src/,(.*)\)$`).FindStringSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no DEVICES")
	}
	listed := strings.Fields(list[1])
	touches := regexp.MustCompile(`exec\.Command|unix\.Mount\(|mounttest\.`)
	found := map[string]bool{}
	walk := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !touches.Match(text) || strings.HasPrefix(string(text), "//go:build vm\n") {
			return err
		}
		pkg := strings.TrimPrefix(filepath.Dir(path), root+"/src/")
		if found[pkg] = true; !slices.Contains(listed, pkg) {
			t.Errorf("%s touches this machine, and DEVICES of the Makefile does not list src/%s", entry.Name(), pkg)
		}
		return nil
	}
	if err := filepath.WalkDir(root+"/src", walk); err != nil {
		t.Fatal(err)
	}
	for _, pkg := range listed {
		if !found[pkg] {
			t.Errorf("DEVICES lists src/%s, whose tests touch nothing of this machine", pkg)
		}
	}
}

// TestMatricesAreThere: one that is renamed would run with the race detector, for minutes.
func TestMatricesAreThere(t *testing.T) {
	makefile := strings.ReplaceAll(read(t, root+"/Makefile"), "\\\n", "")
	variable := func(name string) []string {
		match := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindStringSubmatch(makefile)
		if match == nil {
			t.Fatalf("the Makefile has no %s", name)
		}
		return strings.Fields(match[1])
	}
	var tests strings.Builder
	for _, pkg := range []string{"volume", "disk", "pool"} {
		if !strings.Contains(strings.Join(variable("MATRIX_PACKAGES"), " "), pkg) {
			t.Errorf("MATRIX_PACKAGES lacks %s", pkg)
		}
		files, err := filepath.Glob(root + "/src/driver/internal/" + pkg + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			tests.WriteString(read(t, file))
		}
	}
	for _, name := range variable("MATRIX_TESTS") {
		if !strings.Contains(tests.String(), "\nfunc Test"+name+"(") {
			t.Errorf("no package of MATRIX_PACKAGES has Test%s", name)
		}
	}
}
