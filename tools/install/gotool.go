package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

type goTool struct {
	module     string // folder of the go.mod that pins it, relative to tools/
	pkg        string // import path of its main package
	versionVar string // string variable that the linker sets to the version; empty: none
}

// provide returns the tool's path below cache, building it first if it is not there yet.
func (t goTool) provide(ctx context.Context, dir, cache string) (string, error) {
	moduleDir := filepath.Join(dir, t.module)
	version, err := t.version(ctx, moduleDir)
	if err != nil {
		return "", err
	}
	name := path.Base(t.pkg)
	binary := filepath.Join(cache, "tools", name+"-"+version, name)
	_, missing := os.Stat(binary)
	made, err := os.ReadFile(binary + madeWith)
	err = errors.Join(missing, err)
	if err == nil && string(made) == t.flags(version) {
		return binary, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for the built tool: %w", err)
	}
	fmt.Fprintf(os.Stderr, "install: building %s %s (once; it stays in %s)\n", name, version, filepath.Dir(binary))
	return binary, t.build(ctx, moduleDir, version, binary)
}

// madeWith ends the name of the file that says what a binary was made with besides its version.
const madeWith = ".made-with"

// flags are what that file says: where they change, the tool is built again.
func (t goTool) flags(version string) string {
	return runtime.Version() + " " + runtime.GOARCH + " " + t.ldflags(version)
}

func (t goTool) ldflags(version string) string {
	if t.versionVar == "" {
		return "-s -w"
	}
	return "-s -w -X " + t.versionVar + "=" + version
}

// version reads the pinned version from go.mod without asking the network.
func (t goTool) version(ctx context.Context, moduleDir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir = moduleDir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("read %s/go.mod with the go command: %w", moduleDir, err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("parse the go command's description of %s/go.mod: %w", moduleDir, err)
	}
	best := ""
	version := ""
	for _, req := range mod.Require {
		if strings.HasPrefix(t.pkg+"/", req.Path+"/") && len(req.Path) > len(best) {
			best, version = req.Path, req.Version
		}
	}
	if version == "" {
		return "", fmt.Errorf("%s/go.mod requires no module that holds %s; run `go get -tool %s@VERSION` there",
			moduleDir, t.pkg, t.pkg)
	}
	return version, nil
}

// build compiles beside the final name and renames, so that two builds at once, or a killed one, leave no half tool.
func (t goTool) build(ctx context.Context, moduleDir, version, binary string) error {
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return fmt.Errorf("make the tool's folder: %w", err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(binary), "build-")
	if err != nil {
		return fmt.Errorf("make a scratch folder for the build: %w", err)
	}
	defer os.RemoveAll(scratch)

	built := filepath.Join(scratch, "tool")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", t.ldflags(version),
		"-o", built, t.pkg)
	cmd.Dir = moduleDir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s %s: %w", t.pkg, version, err)
	}
	note := filepath.Join(scratch, "made-with")
	return errors.Join(os.WriteFile(note, []byte(t.flags(version)), 0o644), os.Rename(built, binary),
		os.Rename(note, binary+madeWith))
}
