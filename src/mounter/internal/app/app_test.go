package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// asMounter makes this test binary the mounter.
const asMounter = "HPP_TEST_AS_MOUNTER"

func TestMain(m *testing.M) {
	if os.Getenv(asMounter) != "" {
		os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	m.Run()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// pool is a pool's path on a host, and the same in the mounter's pod.
type pool struct{ root, host, pod string }

func newPool(tb testing.TB) pool {
	tb.Helper()
	root := tb.TempDir()
	mounttest.Tmpfs(tb, root, "")
	must(tb, unix.Mount("", root, "", unix.MS_PRIVATE, ""))
	p := pool{root: root, host: filepath.Join(root, "host"), pod: filepath.Join(root, "pod")}
	must(tb, errors.Join(os.Mkdir(p.host, 0o755), os.Mkdir(p.pod, 0o755)))
	must(tb, unix.Mount(p.host, p.host, "", unix.MS_BIND, ""))
	must(tb, unix.Mount("", p.host, "", unix.MS_SHARED, ""))
	must(tb, unix.Mount(p.host, p.pod, "", unix.MS_BIND, ""))
	return p
}

// claim is a directory that the pod has mounted.
func (p pool) claim(tb testing.TB) string {
	tb.Helper()
	volume, source := filepath.Join(p.root, "volume"), filepath.Join(p.root, "source")
	must(tb, errors.Join(os.Mkdir(volume, 0o755), os.Mkdir(source, 0o755)))
	must(tb, unix.Mount(volume, source, "", unix.MS_BIND, ""))
	must(tb, unix.Mount("", source, "", unix.MS_PRIVATE, ""))
	return source
}

func (p pool) mounted(tb testing.TB) bool {
	tb.Helper()
	is, err := bindmount.New(p.host).Inspect(filepath.Join(p.host, "csi"))
	must(tb, err)
	return is.Mounted
}

// mounter is a process.
type mounter struct {
	cmd     *exec.Cmd
	address string // "" where it ended before it served
	ended   chan error
}

// start starts a mounter, with programs from a directory first.
func (p pool) start(tb testing.TB, programs string, flags ...string) *mounter {
	tb.Helper()
	args := append([]string{"--pool=local", "--path=" + p.pod, "--health-address=127.0.0.1:0"}, flags...)
	m := &mounter{ended: make(chan error, 1)}
	m.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), os.Args[0], args...)
	m.cmd.Env = []string{asMounter + "=1", "PATH=" + programs + ":" + os.Getenv("PATH")}
	log, err := m.cmd.StderrPipe()
	must(tb, err)
	must(tb, m.cmd.Start())
	tb.Cleanup(func() { _ = m.cmd.Process.Kill() })
	addresses := make(chan string, 1)
	go func() {
		defer close(addresses)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Address != "" {
				addresses <- line.Address
			}
		}
		m.ended <- m.cmd.Wait()
	}()
	m.address = <-addresses
	return m
}

// asks gives the status and text of an answer, 0 where there is none.
func (m *mounter) asks(tb testing.TB, path string) (int, string) {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+m.address+path, nil)
	must(tb, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(tb, err)
	return answer.StatusCode, string(text)
}

// becomes waits until /readyz has a status, and says something.
func (m *mounter) becomes(tb testing.TB, status int, says string) {
	tb.Helper()
	waittest.Until(tb, fmt.Sprintf("/readyz says %d: %s", status, says), func() bool {
		code, text := m.asks(tb, "/readyz")
		return code == status && strings.Contains(text, says)
	})
}

// terminate ends the mounter as the kubelet does.
func (m *mounter) terminate(tb testing.TB) {
	tb.Helper()
	must(tb, m.cmd.Process.Signal(syscall.SIGTERM))
	must(tb, <-m.ended)
}

func TestTerminated(t *testing.T) {
	p := newPool(t)
	source := p.claim(t)
	m := p.start(t, "", "--source="+source)
	m.becomes(t, http.StatusOK, "claim: ok")
	if code, text := m.asks(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, text)
	}
	if !p.mounted(t) {
		t.Fatal("ready, and not mounted")
	}
	volume := filepath.Join(p.host, "csi/pvc-1")
	must(t, os.Mkdir(volume, 0o700))
	m.terminate(t)
	if !p.mounted(t) {
		t.Error("the claim was unmounted under a volume")
	}
	again := p.start(t, "", "--source="+source)
	again.becomes(t, http.StatusOK, "claim: ok")
	must(t, os.Remove(volume))
	again.terminate(t)
	if p.mounted(t) {
		t.Error("a claim without volumes stays mounted")
	}
}

func TestRefusalIsNotReady(t *testing.T) {
	p := newPool(t)
	csi := filepath.Join(p.host, "csi")
	must(t, os.MkdirAll(filepath.Join(csi, "pvc-1"), 0o700))
	m := p.start(t, "", "--source="+p.claim(t))
	m.becomes(t, http.StatusServiceUnavailable, "pvc-1")
	if code, text := m.asks(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, text)
	}
	must(t, os.RemoveAll(csi))
	m.becomes(t, http.StatusOK, "claim: ok")
	m.terminate(t)
}

// TestKilled kills the mounter with signal 9 before and after each of its steps, and starts it again.
func TestKilled(t *testing.T) {
	for name, program := range map[string]struct{ name, script string }{
		"before the probe":      {"blkid", "kill -9 $PPID"},
		"after the probe":       {"blkid", `PATH=$PATH_AFTER blkid "$@"; kill -9 $PPID`},
		"before the filesystem": {"mkfs.xfs", "kill -9 $PPID"},
		"after the filesystem":  {"mkfs.xfs", `PATH=$PATH_AFTER mkfs.xfs "$@"; kill -9 $PPID`},
		"mounted":               {},
	} {
		t.Run(name, func(t *testing.T) {
			device := blank(t)
			p := newPool(t)
			programs := t.TempDir()
			if program.name != "" {
				script := "#!/bin/sh\n" + strings.ReplaceAll(program.script, "$PATH_AFTER", os.Getenv("PATH")) + "\n"
				must(t, os.WriteFile(filepath.Join(programs, program.name), []byte(script), 0o700))
			}
			m := p.start(t, programs, "--device="+device)
			if program.name == "" {
				m.becomes(t, http.StatusOK, "claim: ok")
				must(t, m.cmd.Process.Kill())
			}
			var exit *exec.ExitError
			if err := <-m.ended; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("ended with %v", err)
			}
			if p.mounted(t) != (program.name == "") {
				t.Errorf("mounted: %v", p.mounted(t))
			}
			again := p.start(t, "", "--device="+device)
			again.becomes(t, http.StatusOK, "claim: ok")
			again.terminate(t)
		})
	}
}

// blank is a device with nothing on it.
func blank(tb testing.TB) string {
	tb.Helper()
	image := filepath.Join(tb.TempDir(), "disk")
	mounttest.Image(tb, image, "", 320<<20) // mkfs.xfs wants 300 MB
	return mounttest.Device(tb, image)
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		args []string
		says []string
	}{
		{nil, []string{"--pool", "--path", "--source, --device: want one of the two"}},
		{[]string{"--pool=My", "--path=pool", "--source=a", "--device=b"}, []string{
			`--pool: "My"`, `--path: "pool"`, `--source: "a"`, `--device: "b"`, "want one of the two",
		}},
		{[]string{"--pool=a", "--path=/p", "--source=/s", "--health-address=9", "--log-level=loud"}, []string{
			`--health-address: "9"`, `"loud"`,
		}},
		{[]string{"--pool=a", "--path=/p", "--source=/s", "argument"}, []string{"argument"}},
	} {
		var said bytes.Buffer
		if code := Run(test.args, io.Discard, &said); code != 1 {
			t.Errorf("%v: exit code %d", test.args, code)
		}
		for _, part := range test.says {
			if !strings.Contains(said.String(), part) {
				t.Errorf("%v: %s does not say %q", test.args, said.String(), part)
			}
		}
	}
}
