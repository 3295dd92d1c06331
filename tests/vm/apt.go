package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// apt is apt-get with lists of its own: it sees one suite, changes nothing of the machine's, and needs no root.
type apt struct{ options []string }

func newApt(ctx context.Context, dir cache.Dir) (apt, error) {
	state := dir.Path("vm", "apt-"+suite)
	for _, folder := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, folder), 0o755); err != nil {
			return apt{}, fmt.Errorf("make a folder for apt: %w", err)
		}
	}
	source := filepath.Join(state, "sources.list")
	line := "deb [arch=amd64 signed-by=" + keyring + "] " + mirror + " " + suite + " main\n"
	if err := os.WriteFile(source, []byte(line), 0o644); err != nil {
		return apt{}, err
	}
	a := apt{options: []string{
		"-qq",
		"-o", "Dir::Etc::SourceList=" + source,
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State=" + state,
		"-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Cache=" + state,
		"-o", "APT::Architecture=amd64",
		"-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none",
	}}
	_, err := a.run(ctx, ".", "apt-get", "update")
	return a, err
}

// newest says which package the newest kernel is in, and its version.
func (a apt) newest(ctx context.Context) (name, version string, err error) {
	out, err := a.run(ctx, ".", "apt-cache", "show", "--no-all-versions", meta)
	if err != nil {
		return "", "", err
	}
	match := regexp.MustCompile(`(?m)^Depends: (linux-image-\S+) \(= (\S+)\)`).FindSubmatch(out)
	if match == nil {
		return "", "", fmt.Errorf("apt-cache does not say which kernel %s of %s stands for:\n%s", meta, suite, out)
	}
	return string(match[1]), string(match[2]), nil
}

// unpack downloads a kernel package and unpacks it into folder.
func (a apt) unpack(ctx context.Context, name, folder string) error {
	if _, err := a.run(ctx, folder, "apt-get", "download", name); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	if err != nil || len(packages) != 1 {
		return errors.Join(fmt.Errorf("apt-get left %v in %s, want one package", packages, folder), err)
	}
	if _, err := a.run(ctx, folder, "dpkg", "-x", packages[0], folder); err != nil {
		return err
	}
	if err := os.Remove(packages[0]); err != nil {
		return err
	}
	// kmod looks below lib/; Debian's packages count on lib being a link to usr/lib.
	if _, err := os.Lstat(filepath.Join(folder, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Symlink("usr/lib", filepath.Join(folder, "lib")); err != nil {
			return err
		}
	}
	kernel, err := opened(folder)
	if err != nil {
		return err
	}
	if _, err := a.run(ctx, folder, "depmod", "-b", folder, kernel.Release); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "complete"), nil, 0o644)
}

// run runs one of apt's programs with the options, or another without.
func (a apt) run(ctx context.Context, dir, program string, arguments ...string) ([]byte, error) {
	if program == "apt-get" || program == "apt-cache" {
		arguments = append(append([]string{}, a.options...), arguments...)
	}
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		if exit != nil {
			out = append(out, exit.Stderr...)
		}
		return nil, fmt.Errorf("%s %v: %w\n%s", program, arguments[len(arguments)-1:], err, out)
	}
	return out, nil
}
