// Package process builds this repository's programs and runs programs beside a test.
package process

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
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// logTail is how many lines of a process's log a failed test shows.
const logTail = 25

// waitTimeout is more than any program takes to end.
const waitTimeout = 2 * time.Minute

// Process is a program that runs beside the test.
type Process struct {
	// Shown is true when a test that fails has no need of the end of the log any more.
	Shown bool

	command *exec.Cmd
	log     string
	ended   chan struct{}
	err     error // once ended is closed
}

// Run starts a program and ends it with the test, if it has not ended before. A failed test
// shows the end of what it wrote.
func Run(t *testing.T, binary string, environment []string, args ...string) *Process {
	t.Helper()
	name := filepath.Base(binary)
	log, err := os.CreateTemp(t.TempDir(), name+"-*.log")
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
		p.Stop(t)
		p.Show(t)
	})
	return p
}

// Show prints the end of the log of a test that failed, once: a subtest that shows it with its
// failure spares its parents the same.
func (p *Process) Show(t *testing.T) {
	t.Helper()
	if t.Failed() && !p.Shown {
		p.Shown = true
		t.Logf("%s\n%s", p.command, p.tail())
	}
}

// Kill ends the program as a failing machine would.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.ended
}

// Freeze stops the program until it is thawed, or until the test ends.
func (p *Process) Freeze(t *testing.T) (thaw func()) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	thaw = func() { _ = p.command.Process.Signal(syscall.SIGCONT) } // it may have ended
	t.Cleanup(thaw)
	return thaw
}

func (p *Process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatalf("send %s to %s: %v", signal, p.command, err)
	}
}

// Stop asks the program to end and waits until it has. The test fails if the program does not obey.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(waitTimeout):
		t.Errorf("%s has not obeyed SIGTERM for %s", p.command, waitTimeout)
		p.Kill(t)
	}
}

// Err is how the program ended, nil if well, after Stop or Kill.
func (p *Process) Err() error {
	<-p.ended
	return p.err
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
		// as it should be, and the controller manager says so of each
		return strings.Contains(line, "controller is disabled")
	})
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// Build compiles a program such as ./src/operator as it is shipped, and gives the path of the binary.
func Build(t *testing.T, program string) string {
	t.Helper()
	return BuildVersion(t, program, "0.0.0-dev") // what a binary says that was built without a version
}

// BuildVersion is Build of a program that says it is of that version.
func BuildVersion(t *testing.T, program, version string) string {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), filepath.Base(program))
	if err := compile.Run(t.Context(), product.Target(root, program, version, binary)); err != nil {
		t.Fatal(err)
	}
	return binary
}
