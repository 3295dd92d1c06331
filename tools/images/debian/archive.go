// Package debian takes programs out of Debian's packages, for images and machines of whatever architecture.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	mirror   = "http://deb.debian.org/debian"
	security = "http://deb.debian.org/debian-security"
)

// Keyring has the keys that Debian signs its archive with, and KeyringPackage carries it, in Ubuntu too.
const (
	Keyring        = "/usr/share/keyrings/debian-archive-keyring.gpg"
	KeyringPackage = "debian-archive-keyring"
)

// Archive is apt-get with lists of its own: it sees the suites that it was opened with, changes nothing of the
// machine's apt, and needs no root. What it downloads is signed by Debian.
type Archive struct{ options []string }

// Open reads the lists of suites ("bookworm", "bookworm-security") for an architecture, and keeps them in a folder.
func Open(ctx context.Context, folder, arch string, suites ...string) (Archive, error) {
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return Archive{},
				fmt.Errorf("packages of Debian are downloaded with apt; use a machine with Debian or Ubuntu: %w",
					err)
		}
	}
	if _, err := os.Stat(Keyring); err != nil {
		return Archive{}, fmt.Errorf("the keys of Debian are missing, `apt-get install %s`: %w", KeyringPackage, err)
	}
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(folder, sub), 0o755); err != nil {
			return Archive{}, fmt.Errorf("make a folder for apt: %w", err)
		}
	}
	var sources strings.Builder
	for _, suite := range suites {
		from := mirror
		if strings.HasSuffix(suite, "-security") {
			from = security
		}
		fmt.Fprintf(&sources, "deb [arch=%s signed-by=%s] %s %s main\n", arch, Keyring, from, suite)
	}
	list := filepath.Join(folder, "sources.list")
	if err := os.WriteFile(list, []byte(sources.String()), 0o644); err != nil {
		return Archive{}, err
	}
	a := Archive{options: []string{
		"-qq",
		"-o", "Dir::Etc::SourceList=" + list,
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State=" + folder,
		"-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Cache=" + folder,
		"-o", "APT::Architecture=" + arch,
		"-o", "APT::Architectures=" + arch,
		"-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none",
	}}
	_, err := run(ctx, ".", "apt-get", slices.Concat(a.options, []string{"update"})...)
	return a, err
}

// Show is what apt-cache says about the newest version of a package.
func (a Archive) Show(ctx context.Context, name string) ([]byte, error) {
	return run(ctx, ".", "apt-cache", slices.Concat(a.options, []string{"show", "--no-all-versions", name})...)
}

// Unpack downloads packages, with nothing that they depend on, and unpacks them into a folder. What they are is noted
// as scanners look for it in images: var/lib/dpkg/status.d/<name>.
func (a Archive) Unpack(ctx context.Context, folder string, names ...string) error {
	if _, err := run(ctx, folder, "apt-get", slices.Concat(a.options, []string{"download"}, names)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	if err != nil || len(files) != len(names) {
		return errors.Join(fmt.Errorf("apt-get left %v in %s, want one file for each of %v", files, folder, names), err)
	}
	status := filepath.Join(folder, "var/lib/dpkg/status.d")
	if err := os.MkdirAll(status, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		if _, err := run(ctx, folder, "dpkg-deb", "-x", file, folder); err != nil {
			return err
		}
		control, err := run(ctx, folder, "dpkg-deb", "-f", file)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(file), "_")
		if err := errors.Join(os.WriteFile(filepath.Join(status, name), control, 0o644), os.Remove(file)); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, dir, program string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, exit.Stderr...)
		}
		return nil, fmt.Errorf("%s %s: %w\n%s", program, arguments[len(arguments)-1], err, out)
	}
	return out, nil
}
