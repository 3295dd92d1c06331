package guard_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func state(tb testing.TB, machine *disktest.Disk) guard.State {
	tb.Helper()
	machine.AddDir("/state")
	dir, err := machine.OpenDir("/state")
	must(tb, err)
	tb.Cleanup(func() { _ = dir.Close() })
	s, err := guard.NewState(dir)
	must(tb, err)
	return s
}

func TestMemory(t *testing.T) {
	machine := disktest.New()
	s := state(t, machine)
	remembers := func(about string, machine *disktest.Disk, want map[string]guard.Memory) {
		t.Helper()
		all, err := state(t, machine).All()
		if err != nil || len(all) != len(want) {
			t.Fatalf("%s: %+v, %v; want %+v", about, all, err, want)
		}
		for name, m := range want {
			if all[name].Memory != m || all[name].Err != nil {
				t.Errorf("%s: %s is %+v, want %+v", about, name, all[name], m)
			}
		}
	}
	remembers("at first", machine, nil)
	a, b := guard.Memory{ID: "AAAA", Path: "/a"}, guard.Memory{ID: "BBBB", Path: "/b"}
	must(t, s.Put("a", a))
	must(t, s.Put("b", b))
	remembers("put", machine, map[string]guard.Memory{"a": a, "b": b})
	remembers("put, after a crash", machine.Crash(), map[string]guard.Memory{"a": a, "b": b})
	a = guard.Memory{Forgotten: true, Path: "/a"}
	must(t, s.Put("a", a))
	remembers("forgotten", machine.Crash(), map[string]guard.Memory{"a": a, "b": b})
	for step := 1; step <= 5; step++ {
		machine.FailAt(step, syscall.EIO)
		_ = s.Put("a", guard.Memory{ID: "CCCC", Path: "/a"})
		for name, m := range all(t, state(t, machine.Crash())) {
			if m.Err != nil || (m.Memory != a && m.Memory != b && m.ID != "CCCC") || (name == "b") != (m.Memory == b) {
				t.Errorf("step %d failed: %s is %+v", step, name, m)
			}
		}
	}
}

func all(tb testing.TB, s guard.State) map[string]guard.Remembered {
	tb.Helper()
	known, err := s.All()
	must(tb, err)
	return known
}

// TestADamagedMemoryIsOnePoolsTrouble, and its message names the file and the way out.
func TestADamagedMemoryIsOnePoolsTrouble(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "truncated": `{"id": "AAA`, "binary": "\x00\x00\x00\x00", "of another kind": "[]", "null": "null",
		"without an identity": "{}", "too large": strings.Repeat(" ", 1<<20) + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			machine := disktest.New()
			s := state(t, machine)
			must(t, s.Put("whole", guard.Memory{ID: "BBBB", Path: "/whole"}))
			machine.AddFile("/state/pools/hurt.json", []byte(content))
			machine.AddFile("/state/pools/README", nil)
			machine.AddFile("/state/pools/.hurt.json.tmp", nil)
			known := all(t, s)
			if len(known) != 2 || known["whole"].Err != nil || known["whole"].ID != "BBBB" {
				t.Errorf("%+v", known)
			}
			err := known["hurt"].Err
			if err == nil || !strings.Contains(err.Error(), "pools/hurt.json") ||
				!strings.Contains(err.Error(), "kubectl hpp pool forget hurt") {
				t.Errorf("%v", err)
			}
			must(t, s.Put("hurt", guard.Memory{Forgotten: true, Path: "/hurt"}))
			if m := all(t, s)["hurt"]; m.Err != nil || !m.Forgotten {
				t.Errorf("put anew: %+v", m)
			}
		})
	}
}
