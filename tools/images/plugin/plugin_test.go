package plugin_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/plugin"
)

// build builds with a compiler that writes what it was asked for.
func build(t *testing.T) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "plugin")
	err := plugin.Build(t.Context(), plugin.Options{
		Root: "../../..", Output: folder, Version: "1.2.3",
		Compile: func(_ context.Context, c compile.Target) error {
			if !slices.Contains(compile.Args(c), "-s -w -X github.com/hostpath-provisioner/hostpath-provisioner/src/"+
				"internal/buildinfo.version=1.2.3") || c.Dir != "../../.." || c.Package != "./src/kubectl-hpp" {
				t.Errorf("it compiles %v in %s", compile.Args(c), c.Dir)
			}
			return errors.Join(os.MkdirAll(filepath.Dir(c.Output), 0o700),
				os.WriteFile(c.Output, []byte(c.OS+" "+c.Arch), 0o600))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTheManifest: krew finds each archive where the release page has it, knows it by its checksum, and finds the
// program and the license in it.
func TestTheManifest(t *testing.T) {
	folder := build(t)
	const repository = "https://github.com/hostpath-provisioner/hostpath-provisioner"
	head, platforms, _ := strings.Cut(string(read(t, folder, "hpp.yaml")), "  platforms:\n")
	for _, line := range []string{
		"apiVersion: krew.googlecontainertools.github.com/v1alpha2", "kind: Plugin", "  name: hpp",
		"  version: v1.2.3", "  homepage: " + repository,
	} {
		if !strings.Contains("\n"+head, "\n"+line+"\n") {
			t.Errorf("the manifest has no line %q:\n%s", line, head)
		}
	}
	_, short, _ := strings.Cut(head, "shortDescription: ")
	if short, _, _ = strings.Cut(short, "\n"); short == "" || len(short) > 50 {
		t.Errorf("krew wants a short description of at most 50 characters: %q", short)
	}
	var want, sums strings.Builder
	for _, platform := range []string{
		"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64",
	} {
		system, arch, _ := strings.Cut(platform, "/")
		name, bin := "kubectl-hpp_v1.2.3_"+system+"_"+arch+".tar.gz", "kubectl-hpp"
		if system == "windows" {
			name, bin = strings.TrimSuffix(name, ".tar.gz")+".zip", bin+".exe"
		}
		archive := read(t, folder, name)
		sum := fmt.Sprintf("%x", sha256.Sum256(archive))
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
		fmt.Fprintf(&want, "  - selector:\n      matchLabels:\n        os: %s\n        arch: %s\n    uri: %s\n"+
			"    sha256: %s\n    bin: %s\n", system, arch, repository+"/releases/download/v1.2.3/"+name, sum, bin)
		inside := map[string]string{
			bin + " -rwxr-xr-x": system + " " + arch, "LICENSE -rw-r--r--": string(read(t, "../../..", "LICENSE")),
		}
		if diff := cmp.Diff(inside, unpacked(t, name, archive)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(want.String(), platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sums.String(), string(read(t, folder, "checksums.txt"))); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
}

// unpacked is what an archive holds, by name and mode.
func unpacked(t *testing.T, name string, archive []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string, mode os.FileMode, from io.Reader) {
		data, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		all[name+" "+mode.String()] = string(data)
	}
	if path.Ext(name) == ".zip" {
		zipped, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range zipped.File {
			opened, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.Mode(), opened)
		}
		return all
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(uncompressed); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		add(header.Name, header.FileInfo().Mode(), files)
	}
}

// TestTheSameTwice: whoever builds a release again gets its bytes.
func TestTheSameTwice(t *testing.T) {
	one, other := build(t), build(t)
	for _, name := range []string{"checksums.txt", "hpp.yaml"} {
		if diff := cmp.Diff(string(read(t, one, name)), string(read(t, other, name))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestAProgramThatDoesNotCompile leaves no manifest.
func TestAProgramThatDoesNotCompile(t *testing.T) {
	folder, broken := t.TempDir(), errors.New("broken")
	err := plugin.Build(t.Context(), plugin.Options{
		Root: "../../..", Output: folder, Version: "1.2.3",
		Compile: func(context.Context, compile.Target) error { return broken },
	})
	left, readErr := os.ReadDir(folder)
	if !errors.Is(err, broken) || readErr != nil || len(left) != 0 {
		t.Errorf("error %v, left %v, %v", err, left, readErr)
	}
}
