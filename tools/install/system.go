package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// provideSystem finds name in PATH or installs the Debian package that carries it.
func provideSystem(ctx context.Context, name, pkg string) (string, error) {
	if found, err := exec.LookPath(name); err == nil {
		return found, nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return "", fmt.Errorf("not in PATH and there is no apt-get; install what Debian calls %q", pkg)
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("not in PATH; run `sudo apt-get install %s`", pkg)
	}
	fmt.Fprintf(os.Stderr, "install: installing Debian's %s\n", pkg)
	// The lists are empty in a fresh container; a stale list makes the install fail in a way that update mends.
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", pkg}} {
		// Somebody else may be installing something: that is waited for, for ten minutes.
		cmd := exec.CommandContext(ctx, apt, append([]string{"-o", "DPkg::Lock::Timeout=600"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %v: %w\n%s", args, err, out)
		}
	}
	return exec.LookPath(name)
}
