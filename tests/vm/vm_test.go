package vm

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestArchive compares with the format as the kernel documents it: 13 fields of 8 hexadecimal digits, then the name,
// both parts and the content filled up to 4 bytes.
func TestArchive(t *testing.T) {
	var out bytes.Buffer
	a := &archive{out: &out}
	must(t, a.add("/bin/x", 0o755, 5, strings.NewReader("12345")))
	must(t, a.add("bin/yy", 0o600, 0, nil))
	must(t, a.close())
	entry := func(inode, mode, size, length, name string) string {
		fields := []string{"070701", inode, mode, "0", "0", "1", "0", size, "0", "0", "0", "0", length, "0", name}
		for i, field := range fields[1:14] {
			fields[i+1] = strings.Repeat("0", 8-len(field)) + field
		}
		return strings.Join(fields, "")
	}
	want := entry("1", "41ed", "0", "4", "bin\x00\x00\x00") +
		entry("2", "81ed", "5", "6", "bin/x\x00") + "12345\x00\x00\x00" +
		entry("3", "8180", "0", "7", "bin/yy\x00\x00\x00\x00") +
		entry("4", "0", "0", "b", "TRAILER!!!\x00\x00\x00\x00")
	got := out.String()
	if got != want {
		t.Errorf("archive is\n%q, want\n%q", got, want)
	}
	if err := a.add("short", 0o600, 9, strings.NewReader("12345")); err == nil {
		t.Error("content that is shorter than said is no error")
	}
}

func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := need("qemu-system-x86_64")
	for _, part := range []string{"qemu-system-x86_64 is missing", "package qemu-system-x86 "} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error is %v, want one with %q", err, part)
		}
	}
}

// TestNothingRunIsNoSuccess: a test that was renamed, or is skipped, is missed.
func TestNothingRunIsNoSuccess(t *testing.T) {
	patterns := []string{"^TestOne$", "^TestVM"}
	for name, test := range map[string]struct{ lines, left []string }{
		"none matches": {[]string{"testing: warning: no tests to run", "PASS"}, patterns},
		"all pass": {
			[]string{"=== RUN   TestOne", "--- PASS: TestOne (0.10s)", "--- PASS: TestVMTwo (0.00s)", "PASS"}, nil,
		},
		"one renamed": {[]string{"--- PASS: TestOneMore (0.10s)", "--- PASS: TestVMTwo (0.00s)", "PASS"}, patterns[:1]},
		"one skipped": {
			[]string{
				"--- PASS: TestOne (0.10s)", "--- SKIP: TestVMTwo (0.00s)", "    --- PASS: TestVMTwo/sub (0.00s)",
				"PASS",
			},
			patterns[1:],
		},
	} {
		if left := unpassed(test.lines, patterns); !slices.Equal(left, test.left) {
			t.Errorf("%s: %q are said to be missing, want %q", name, left, test.left)
		}
	}
}

// TestFailures checks that nothing which goes wrong in a VM looks like success.
func TestFailures(t *testing.T) {
	kernel := fetch(t)
	config := func() Config {
		return Config{Kernel: kernel, Command: []string{"/missing"}, Dir: folder(t, "failures")}
	}

	m := boot(t, config())
	for _, ok := m.Next(); ok; _, ok = m.Next() {
		continue
	}
	if err := m.Wait(); err == nil || !strings.Contains(err.Error(), "/missing") {
		t.Errorf("a command that is not there: %v", err)
	}

	m = boot(t, config())
	must(t, m.cmd.Process.Kill())
	if line, ok := m.Next(); ok {
		t.Errorf("a line out of a dead VM: %q", line)
	}
	if err := m.Wait(); err == nil || !strings.Contains(err.Error(), "the VM died") {
		t.Errorf("a VM that was killed: %v", err)
	}

	broken := config()
	broken.Modules = []string{"no_such_module"}
	if _, err := Start(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "no_such_module") {
		t.Errorf("a module that is not there: %v", err)
	}
}
