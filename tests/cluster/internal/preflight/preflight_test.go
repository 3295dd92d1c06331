package preflight_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/preflight"
)

// healthy is a host on which everything is there; tests take something away.
func healthy() preflight.Host {
	return preflight.Host{
		LookPath: func(name string) (string, error) { return "/usr/bin/" + name, nil },
		Docker:   func() error { return nil },
		Free:     func(string) (uint64, error) { return 100 << 30, nil },
		Watchers: func() (used, limit int, err error) { return 60, 128, nil },
	}
}

func without(names ...string) func(string) (string, error) {
	return func(name string) (string, error) {
		if slices.Contains(names, name) {
			return "", exec.ErrNotFound
		}
		return "/usr/bin/" + name, nil
	}
}

func TestBasicNamesWhatIsMissingAndTheRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*preflight.Host)
		want   []string
	}{
		"nothing missing": {func(*preflight.Host) {}, nil},
		"two tools": {
			func(h *preflight.Host) { h.LookPath = without("git", "docker") },
			[]string{"docker is not on PATH: install Docker", "git is not on PATH: install git"},
		},
		"Docker stopped": {
			func(h *preflight.Host) {
				h.Docker = func() error {
					return errors.New("Cannot connect to the Docker daemon at unix:///var/run/docker.sock")
				}
			},
			[]string{"docker does not answer: start it"},
		},
		"not in the group": {
			func(h *preflight.Host) {
				h.Docker = func() error { return errors.New("permission denied while trying to connect") }
			},
			[]string{"join the docker group"},
		},
		"disk nearly full": {
			func(h *preflight.Host) { h.Free = func(string) (uint64, error) { return 3 << 30, nil } },
			[]string{"only 3 GiB are free in /cache, and 6 GiB are needed: make room or set HPP_CACHE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := healthy()
			test.change(&h)
			check(t, preflight.Basic(h, "/cache"), test.want)
		})
	}
}

func TestWatchersNamesTheRemedy(t *testing.T) {
	check(t, preflight.Watchers(healthy(), 3), nil)
	check(t, preflight.Watchers(healthy(), 5),
		[]string{"only 68 of 128 inotify instances are left and 5 new nodes take 85: remove another kind cluster, or " +
			"raise the limit (sudo sysctl fs.inotify.max_user_instances=512)"})
}

// TestThisHostCountsWatchers: a watcher of this very process is seen.
func TestThisHostCountsWatchers(t *testing.T) {
	before, limit, err := preflight.ThisHost(t.Context()).Watchers()
	if err != nil || limit <= 0 {
		t.Fatalf("%d of %d, %v", before, limit, err)
	}
	fds := make([]int, 3)
	for i := range fds {
		if fds[i], err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[i])
	}
	if after, _, err := preflight.ThisHost(t.Context()).Watchers(); err != nil || after < len(fds) {
		t.Errorf("%d watchers, %v; want at least the %d of this test", after, err, len(fds))
	}
}

// check wants one line for each sentence, and no other.
func check(t *testing.T, err error, sentences []string) {
	t.Helper()
	if err == nil {
		if len(sentences) > 0 {
			t.Errorf("no error, want %q", sentences)
		}
		return
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(sentences) {
		t.Fatalf("%d lines, want %d: %q", len(lines), len(sentences), lines)
	}
	for i, want := range sentences {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %q does not say %q", lines[i], want)
		}
	}
}
