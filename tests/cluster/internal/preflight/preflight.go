// Package preflight looks for what would fail later, and says in one sentence
// each what is missing and what to do about it.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
)

// diskToRun is how many bytes must be free for the cache and Docker together.
const diskToRun = 6 << 30

// Host is what the checks ask; tests fake it.
type Host struct {
	// LookPath finds a program on PATH.
	LookPath func(name string) (string, error)
	// Exists reports whether there is such a file.
	Exists func(path string) bool
	// Docker asks the daemon for its version.
	Docker func() error
	// Free is how many bytes are free for a folder.
	Free func(dir string) (uint64, error)
	// Memory is how many bytes are available.
	Memory func() (uint64, error)
	// Watchers counts the inotify instances in use, and their limit.
	Watchers func() (used, limit int, err error)
	OS       string
	UID      int
}

// ThisHost is the machine that the program runs on.
func ThisHost(ctx context.Context) Host {
	return Host{
		LookPath: exec.LookPath,
		Exists:   func(path string) bool { _, err := os.Stat(path); return err == nil },
		Docker:   func() error { return dockercli.Run(ctx, "version", "--format", "{{.Server.Version}}") },
		Free:     free,
		Memory:   available,
		Watchers: watchers,
		OS:       runtime.GOOS,
		UID:      os.Getuid(),
	}
}

// Basic checks what every command needs.
func Basic(h Host, cacheDir string) error {
	var errs []error
	for _, tool := range []struct{ name, remedy string }{
		{"docker", "install Docker Engine and start it"},
		{"git", "install git"},
		{"go", "install Go 1.26 or newer"},
	} {
		if _, err := h.LookPath(tool.name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not on PATH: %s", tool.name, tool.remedy))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, docker(h.Docker()), Disk(h, cacheDir, diskToRun))
	}
	return errors.Join(errs...)
}

func docker(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "permission denied"):
		return errors.New("this user may not talk to Docker: join the docker group (sudo usermod -aG docker $USER, " +
			"then log in again)")
	default:
		return errors.New(
			"docker does not answer: start it (sudo systemctl start docker) or set DOCKER_HOST to where it runs",
		)
	}
}

// Disk checks that as many bytes are free in a folder.
func Disk(h Host, dir string, want uint64) error {
	have, err := h.Free(dir)
	if err != nil {
		return fmt.Errorf("ask how much room is left in %s: %w", dir, err)
	}
	if have < want {
		return fmt.Errorf("only %d GiB are free in %s, and %d GiB are needed: make room or "+
			"set HPP_CACHE to a folder on a larger disk", have>>30, dir, want>>30)
	}
	return nil
}

func free(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// available is memory plus swap that can be had without harm, as
// /proc/meminfo says; where there is no such file it is not limited here.
func available() (uint64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if os.IsNotExist(err) {
		return 1 << 62, nil
	}
	if err != nil {
		return 0, err
	}
	var total uint64
	for line := range strings.Lines(string(raw)) {
		var kib uint64
		for _, key := range []string{"MemAvailable:", "SwapFree:"} {
			if n, _ := fmt.Sscanf(line, key+" %d kB", &kib); n == 1 {
				total += kib << 10
			}
		}
	}
	return total, nil
}
