// Package rootfs makes the root filesystem of a node from Debian's packages.
package rootfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/debian"
)

// recipe is part of the cache key: raise it when this file does something new.
const recipe = "1"

// Names of the files in an entry of the cache.
const (
	// SystemTar is the whole root filesystem.
	SystemTar = "system.tar"
	// FirewallTar holds iptables, nft and conntrack with all they link to:
	// the base of the kube-proxy image.
	FirewallTar = "firewall.tar"
)

// Folder names the entry in the cache.
func Folder() string { return "rootfs/" + programs.Debian + "-" + Key() }

// Key changes with the packages and with this package's recipe.
func Key() string {
	return programs.Key(append([]string{recipe, programs.Debian}, programs.DebianPackages()...)...)
}

// Build returns the folder with both archives, making them when the cache
// does not have them. It needs root, debootstrap and a Debian mirror.
func Build(ctx context.Context, dir cache.Dir, report func(string)) (string, error) {
	return dir.Once(Folder(), func(out string) error {
		tree := filepath.Join(out, "tree")
		if err := debootstrap(ctx, tree, report); err != nil {
			return err
		}
		report("packing")
		if err := slim(tree); err != nil {
			return err
		}
		if err := writeFirewall(tree, filepath.Join(out, FirewallTar)); err != nil {
			return err
		}
		pack := exec.CommandContext(ctx, "tar", "--numeric-owner", "--sort=name", "-C", tree, "-cf",
			filepath.Join(out, SystemTar), ".")
		if text, err := pack.CombinedOutput(); err != nil {
			return fmt.Errorf("pack the node's root filesystem: %w\n%s", err, text)
		}
		return os.RemoveAll(tree)
	})
}

// debootstrap runs in a mount namespace of its own: what it mounts below tree
// goes when it ends, however it ends, so tree can always be removed safely.
func debootstrap(ctx context.Context, tree string, report func(string)) error {
	// Without the keys, as on Ubuntu, debootstrap would take packages that nobody has signed, and only warn.
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--keyring="+debian.Keyring,
		"--force-check-gpg", "--include="+strings.Join(programs.DebianPackages(), ","), programs.Debian, tree)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start debootstrap: %w", err)
	}
	tail := watch(stdout, report)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("debootstrap of Debian %s (needs root and a reachable Debian mirror): %w\n%s",
			programs.Debian, err, strings.Join(tail, "\n"))
	}
	return nil
}

func watch(output io.Reader, report func(string)) []string {
	const keep = 10
	var tail []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		text := strings.TrimPrefix(lines.Text(), "I: ")
		report(strings.TrimSuffix(text, "..."))
		tail = append(tail, text)
		tail = tail[max(0, len(tail)-keep):]
	}
	return tail
}

// slim removes what a node never reads, and the units that do not belong in a
// container: the same ones that kind's own image removes.
func slim(tree string) error {
	patterns := []string{
		"var/cache/apt/*", "var/lib/apt/lists/*", "var/log/*",
		"usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*",
		"etc/systemd/system/*.wants/*",
		"lib/systemd/system/multi-user.target.wants/*",
		"lib/systemd/system/local-fs.target.wants/*",
		"lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
		"lib/systemd/system/sockets.target.wants/*udev*",
		"lib/systemd/system/sockets.target.wants/*initctl*",
		"lib/systemd/system/basic.target.wants/*",
		"etc/machine-id",
	}
	for _, pattern := range patterns {
		matches, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return err
		}
		for _, match := range matches {
			if err := os.RemoveAll(match); err != nil {
				return fmt.Errorf("slim the root filesystem: %w", err)
			}
		}
	}
	// Kernel messages of the host would be confusing in a node's journal.
	return appendLine(filepath.Join(tree, "etc/systemd/journald.conf"), "ReadKMsg=no")
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, fs.FileMode(0o644))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}
