package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// logTail is how many lines of a process's log a failed test shows.
const logTail = 25

// Process is a program that runs beside the test.
type Process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
	err     error // once ended is closed
	shown   bool
}

// Run starts a program and ends it with the test, if it has not ended before. A failed test
// shows the end of what it wrote.
func (s *Server) Run(t *testing.T, binary string, environment []string, args ...string) *Process {
	t.Helper()
	name := filepath.Base(binary)
	log, err := os.CreateTemp(s.dir, name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: that is over before clean-up begins, and programs are asked to end, not killed.
	command := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = log, log
	// A test that panics or is killed takes its programs with it.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatalf("start %s: %v", command, err)
	}
	p := &Process{command: command, log: log.Name(), ended: make(chan struct{})}
	go func() {
		p.err = errors.Join(command.Wait(), log.Close())
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Stop()
		p.Show(t)
	})
	return p
}

// Show prints the end of the log of a test that failed, once: a subtest that shows it with its
// failure spares its parents the same.
func (p *Process) Show(t *testing.T) {
	t.Helper()
	if t.Failed() && !p.shown {
		p.shown = true
		t.Logf("%s\n%s", p.command, p.tail())
	}
}

// Stop asks the program to end and waits until it has.
func (p *Process) Stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	<-p.ended
}

// Running is nil while the program runs, and else says how it ended.
func (p *Process) Running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended (%w):\n%s", p.command.Path, p.err, p.tail())
	default:
		return nil
	}
}

// Log is all that the program wrote.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *Process) tail() string {
	lines := slices.DeleteFunc(strings.Split(p.Log(), "\n"), func(line string) bool {
		return strings.Contains(line, "controller is disabled") // as it should be, and the controller manager says so of each
	})
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// Build compiles a program such as ./src/operator as it is shipped, and gives the path of the binary.
func (s *Server) Build(t *testing.T, program string) string {
	t.Helper()
	return s.BuildVersion(t, program, "0.0.0-dev") // what a binary says that was built without a version
}

// BuildVersion is Build of a program that says it is of that version.
func (*Server) BuildVersion(t *testing.T, program, version string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(program))
	if err := compile.Run(t.Context(), product.Target(helmcli.Root(t), program, version, binary)); err != nil {
		t.Fatal(err)
	}
	return binary
}
