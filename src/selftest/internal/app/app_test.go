package app_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/selftest/internal/app"
)

func selftest(t *testing.T, args ...string) (code int, out, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	code = app.Main(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestWrittenFileReadsBackWithTheSameSum(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	code, out, stderr := selftest(t, "write", file, "--bytes", "70001")
	if code != 0 {
		t.Fatalf("write: exit %d: %s", code, stderr)
	}
	sum, _, _ := strings.Cut(out, " ")
	if code, out, _ = selftest(t, "read", file); code != 0 || !strings.HasPrefix(out, sum) ||
		!strings.Contains(out, " 70001 bytes") {
		t.Errorf("read: exit %d, %q; want the sum %s and 70001 bytes", code, out, sum)
	}
	if code, _, stderr = selftest(t, "checksum", "--want", sum, file); code != 0 {
		t.Errorf("checksum of what was written: exit %d: %s", code, stderr)
	}
}

func TestContentDependsOnLengthAlone(t *testing.T) {
	dir := t.TempDir()
	sumOf := func(name, bytes string) string {
		code, out, stderr := selftest(t, "write", filepath.Join(dir, name), "--bytes", bytes)
		if code != 0 {
			t.Fatalf("write: exit %d: %s", code, stderr)
		}
		sum, _, _ := strings.Cut(out, " ")
		return sum
	}
	if a, b := sumOf("a", "4096"), sumOf("b", "4096"); a != b {
		t.Errorf("same length, sums %s and %s", a, b)
	}
	if a, b := sumOf("a", "4096"), sumOf("b", "4097"); a == b {
		t.Error("4096 and 4097 bytes have the same sum")
	}
}

func TestChecksumFailsOnChangedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	_, out, _ := selftest(t, "write", file, "--bytes", "100")
	sum, _, _ := strings.Cut(out, " ")
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := selftest(t, "checksum", file, "--want", sum); code != 1 || !strings.Contains(stderr, sum) {
		t.Errorf("exit %d, %q; want 1 and the wanted sum in the message", code, stderr)
	}
}

func TestFillSaysHowMuchFitted(t *testing.T) {
	dir := t.TempDir()
	code, out, stderr := selftest(t, "fill", dir, "--bytes", "5000")
	if code != 0 || !strings.HasPrefix(out, "5000 all fill-") {
		t.Errorf("exit %d, %q %s; want 5000 all", code, out, stderr)
	}
}

func TestSigtermEndsTheWaitingCommandsWithSuccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	for _, args := range [][]string{{"sleep"}, {"append-loop", file}} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() { done <- app.Main(ctx, args, &bytes.Buffer{}, &bytes.Buffer{}) }()
		time.AfterFunc(20*time.Millisecond, cancel)
		if code := <-done; code != 0 {
			t.Errorf("%v: exit %d, want 0", args, code)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "1\n" {
		t.Errorf("append-loop wrote %q (%v), want its first line", got, err)
	}
}

func TestAppendLoopGoesOnWhenTheDiskIsFull(t *testing.T) {
	const device = "/dev/full" // the kernel's own: every write fails with ENOSPC
	ctx, cancel := context.WithCancel(t.Context())
	said, stderr := io.Pipe()
	done := make(chan int)
	var out bytes.Buffer
	go func() {
		code := app.Main(ctx, []string{"append-loop", device}, &out, stderr)
		_ = stderr.Close()
		done <- code
	}()
	lines := bufio.NewScanner(said)
	for range 2 {
		if !lines.Scan() || !strings.Contains(lines.Text(), "line 1 waits for room") ||
			!strings.Contains(lines.Text(), device) {
			t.Errorf("it said %q; want that line 1 waits for room on %s", lines.Text(), device)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	cancel()
	if code := <-done; code != 0 || out.String() != "0 lines\n" {
		t.Errorf("exit %d, %q; want 0 and no line", code, out.String())
	}
}

func TestListShowsOwnerAndSize(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "name"), []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	code, out, _ := selftest(t, "ls", dir)
	fields := strings.Fields(out)
	if code != 0 || len(fields) != 5 || fields[0] != "-rw-r-----" || fields[3] != "5" || fields[4] != "name" {
		t.Errorf("exit %d, %q", code, out)
	}
}

func TestWrongCommandLinesExitWithTwoAndUsage(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"wipe", "f"},
		{"write"},
		{"write", "f", "--bytes", "1Mi"},
		{"write", "f", "--bytes", "-1"},
		{"write", "f", "g"},
		{"fill", "d"},
		{"read", "f", "--unknown"},
	} {
		if code, _, stderr := selftest(t, args...); code != 2 || !strings.Contains(stderr, "usage: selftest") {
			t.Errorf("%v: exit %d, %q; want 2 and the usage", args, code, stderr)
		}
	}
}

func TestMissingFileExitsWithOne(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{
		{"read", missing}, {"checksum", missing}, {"ls", missing}, {"write", missing + "/f"},
	} {
		if code, _, stderr := selftest(t, args...); code != 1 || !strings.Contains(stderr, missing) {
			t.Errorf("%v: exit %d, %q; want 1 and the path", args, code, stderr)
		}
	}
}
