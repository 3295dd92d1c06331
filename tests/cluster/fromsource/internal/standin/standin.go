// Package standin starts nodes where Docker cannot start privileged containers, in the same way to kind's eyes.
package standin

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// script stands in for docker; see its first lines.
//
//go:embed standin.sh
var script string

// capSysResource is the bit of CAP_SYS_RESOURCE, capability 24 in capabilities(7).
const capSysResource = 24

// Needed reports whether this host cannot start privileged containers:
// they need every capability, and some sandboxes have given one up for good.
func Needed() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if os.IsNotExist(err) {
		return false, nil // not Linux: Docker runs in a machine of its own
	}
	if err != nil {
		return false, err
	}
	return lacksSysResource(string(status))
}

// lacksSysResource reads the bounding set in the text of /proc/PID/status.
func lacksSysResource(status string) (bool, error) {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			if err != nil {
				return false, fmt.Errorf("read CapBnd in /proc/self/status: %w", err)
			}
			return set&(1<<capSysResource) == 0, nil
		}
	}
	return false, fmt.Errorf("no CapBnd in /proc/self/status")
}

// Use writes the stand-in to folder and puts folder first on this
// process's PATH, for kind, which looks docker up there. Nothing on the host
// changes. Calling it again does nothing more.
func Use(folder string) error {
	path := strings.Join(without(filepath.SplitList(os.Getenv("PATH")), folder), string(filepath.ListSeparator))
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	docker, err := exec.LookPath("docker")
	if err != nil {
		return fmt.Errorf("find docker: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder for docker's stand-in: %w", err)
	}
	file := filepath.Join(folder, "docker")
	if err := replaceFile(file, strings.ReplaceAll(script, "@DOCKER@", docker)); err != nil {
		return fmt.Errorf("write docker's stand-in: %w", err)
	}
	return os.Setenv("PATH", folder+string(filepath.ListSeparator)+path)
}

// replaceFile writes in one step, for another process may be running it. No program may be started meanwhile: until it
// runs it would have the file open for writing too, and nobody can run that then ("text file busy").
func replaceFile(file, text string) error {
	temporary := fmt.Sprintf("%s.%d", file, os.Getpid())
	syscall.ForkLock.RLock()
	err := os.WriteFile(temporary, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

func without(list []string, unwanted string) []string {
	var kept []string
	for _, entry := range list {
		if entry != unwanted {
			kept = append(kept, entry)
		}
	}
	return kept
}
