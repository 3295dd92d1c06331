package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events are of two packages at once: one passes, one fails with a test that passes, one that fails in a part, and one
// that never ends.
const events = `go: downloading example.org v1.0.0
{"Action":"start","Package":"m/good"}
{"Action":"run","Package":"m/good","Test":"TestA"}
{"Action":"output","Package":"m/good","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"m/bad","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"m/good","Test":"TestA","Output":"    a.go:1: a word\n"}
{"Action":"output","Package":"m/bad","Test":"TestB/part","Output":"    b.go:1: wrong\n"}
{"Action":"pass","Package":"m/good","Test":"TestA","Elapsed":1.5}
{"Action":"output","Package":"m/good","Output":"PASS\n"}
{"Action":"output","Package":"m/good","Output":"ok  \tm/good\t1.600s\n"}
{"Action":"pass","Package":"m/good","Elapsed":1.6}
{"Action":"output","Package":"m/bad","Test":"TestB","Output":"--- FAIL: TestB (2.00s)\n"}
{"Action":"output","Package":"m/bad","Test":"TestB/part","Output":"    --- FAIL: TestB/part (2.00s)\n"}
{"Action":"fail","Package":"m/bad","Test":"TestB/part","Elapsed":2}
{"Action":"fail","Package":"m/bad","Test":"TestB","Elapsed":2}
{"Action":"output","Package":"m/bad","Test":"TestC","Output":"    c.go:1: quiet\n"}
{"Action":"pass","Package":"m/bad","Test":"TestC","Elapsed":0}
{"Action":"output","Package":"m/bad","Test":"TestD","Output":"panic: test timed out\n"}
{"ImportPath":"m/none","Action":"build-output","Output":"none.go:1: undefined: x\n"}
{"Action":"output","Package":"m/bad","Output":"FAIL\tm/bad\t2.100s\n"}
{"Action":"fail","Package":"m/bad","Elapsed":2.1}
`

func TestRecordShowsWhatGoTestWouldAndKeepsSeconds(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "timings")
	var out bytes.Buffer
	r := recording{folder: folder, target: "test-unit", part: "tools/images"}
	if err := record(strings.NewReader(events), &out, r); err != nil {
		t.Fatal(err)
	}
	want := "go: downloading example.org v1.0.0\nok  \tm/good\t1.600s\nnone.go:1: undefined: x\n" +
		"--- FAIL: TestB (2.00s)\n    b.go:1: wrong\n    --- FAIL: TestB/part (2.00s)\npanic: test timed out\nFAIL\tm/bad\t2.100s\n"
	if out.String() != want {
		t.Errorf("shown:\n%s\nwant:\n%s", out.String(), want)
	}
	kept, err := os.ReadFile(filepath.Join(folder, "test-unit-tools-images.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	if line := "1.60\ttest-unit\tm/good\t-\n"; !strings.Contains(string(kept), line) {
		t.Errorf("kept:\n%s\nwant the line %q", kept, line)
	}
	out.Reset()
	if err := slowest(&out, folder, 1); err != nil || out.String() != "    2.0 s  TestB (bad, test-unit)\n" {
		t.Errorf("the slowest test is %q, %v", out.String(), err)
	}
}

func TestRecordVerboselyShowsAllAtOnce(t *testing.T) {
	var out bytes.Buffer
	r := recording{folder: t.TempDir(), target: "e2e", verbose: true}
	if err := record(strings.NewReader(events), &out, r); err != nil {
		t.Fatal(err)
	}
	if first := "=== RUN   TestA\n=== RUN   TestB\n    a.go:1: a word\n"; !strings.Contains(out.String(), first) {
		t.Errorf("shown:\n%s\nwant what tests print in its order:\n%s", out.String(), first)
	}
}

func TestTimingsNameTheBadLine(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "x.tsv"), []byte("1.0\tx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := slowest(&bytes.Buffer{}, folder, 1); err == nil || !strings.Contains(err.Error(), "x.tsv") {
		t.Errorf("error is %v, want one that names the file", err)
	}
}

// TestLanesRunAllAndNameWhatFailed: each of two lanes waits for the other's first target, so they run at the same time,
// and what comes after a failure is run too.
func TestLanesRunAllAndNameWhatFailed(t *testing.T) {
	root := t.TempDir()
	makefile := `.SHELLFLAGS := -euc
meets = touch $@.there; until [ -e $(1).there ]; do sleep 0.1; done; echo "$@ has met $(1)"
left: ; @$(call meets,right)
right: ; @$(call meets,left)
bad: ; @echo a reason; exit 3
after: ; @echo it ran
`
	if err := os.WriteFile(filepath.Join(root, "Makefile"), []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"lanes", "-root", root, "left bad after", "right"}, nil, &out)
	if err == nil || err.Error() != "failed: bad" {
		t.Errorf("error is %v, want one that names the target", err)
	}
	for _, part := range []string{
		"make left begins", "left has met right", "right has met left", "a reason", "it ran", "make bad: 0 s, FAILED: ",
		"make after: 0 s, passed", "\nmake test: ",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in:\n%s", part, out.String())
		}
	}
}
