package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lanes run targets of the Makefile: those of one lane one after the other, the lanes beside each other.
type lanes struct {
	root, folder string

	mu    sync.Mutex
	out   io.Writer
	ended []ended
}

// ended is a target that was run.
type ended struct {
	target string
	took   time.Duration
	err    error
}

// runLanes runs every target, also after one has failed, and says at the end what each took and which failed.
func runLanes(ctx context.Context, out io.Writer, root, folder string, targets []string) error {
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the last run's timings: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder for timings: %w", err)
	}
	l := &lanes{root: root, folder: folder, out: out}
	begin := time.Now()
	var lane sync.WaitGroup
	for _, list := range targets {
		lane.Go(func() {
			for target := range strings.FieldsSeq(list) {
				l.run(ctx, target)
			}
		})
	}
	lane.Wait()
	return errors.Join(l.summary(time.Since(begin)), ctx.Err())
}

// run is one target. Its output goes into a file, and is shown in one piece when it has ended.
func (l *lanes) run(ctx context.Context, target string) {
	if ctx.Err() != nil {
		return
	}
	l.say("make %s begins\n", target)
	begin := time.Now()
	log := filepath.Join(l.folder, target+".log")
	err := l.command(ctx, target, log)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := ended{target, time.Since(begin), err}
	l.ended = append(l.ended, e)
	text, readErr := os.ReadFile(log)
	if readErr != nil {
		text = []byte(readErr.Error())
	}
	l.print("%s--- what make %s printed:\n%s--- end of make %s: %s\n", now(), target, text, target, e)
}

func (l *lanes) command(ctx context.Context, target, log string) error {
	file, err := os.Create(log)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "-C", l.root, target)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // tests remove what they have made
	return errors.Join(cmd.Run(), file.Close())
}

func (l *lanes) say(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.print(now()+format, arguments...)
}

// print ignores that nobody may be there to read: the result is the exit status.
func (l *lanes) print(format string, arguments ...any) {
	_, _ = fmt.Fprintf(l.out, format, arguments...)
}

func now() string { return time.Now().Format("15:04:05 ") }

// String is how long it took, and how it ended.
func (e ended) String() string {
	how := "passed"
	if e.err != nil {
		how = "FAILED: " + e.err.Error()
	}
	return fmt.Sprintf("%.0f s, %s", e.took.Seconds(), how)
}

// summary is what a reader of the end needs; its error names the targets that failed.
func (l *lanes) summary(took time.Duration) error {
	l.print("\nThe ten slowest tests (all are in %s):\n", l.folder)
	err := slowest(l.out, l.folder, 10)
	var failed []string
	var targets strings.Builder
	for _, e := range l.ended {
		fmt.Fprintf(&targets, "make %s: %s\n", e.target, e)
		if e.err != nil {
			failed = append(failed, e.target)
		}
	}
	l.print("\n%smake test: %.0f s\n", targets.String(), took.Seconds())
	err = errors.Join(err, os.WriteFile(filepath.Join(l.folder, "targets.txt"), []byte(targets.String()), 0o644))
	if len(failed) > 0 {
		err = errors.Join(fmt.Errorf("failed: %s", strings.Join(failed, ", ")), err)
	}
	return err
}
