package vm

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// inTime is the test's context, which ends a minute before go test ends the run: VMs and compilers die, and there is
// time to say what they said.
func inTime(t *testing.T) context.Context {
	t.Helper()
	deadline, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// boot starts a VM.
func boot(t *testing.T, c Config) *Machine {
	t.Helper()
	m, err := Start(inTime(t), c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// folder is one for images, removed at the end.
func folder(t *testing.T, name string) string {
	t.Helper()
	dir, err := scratch(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fetch(t *testing.T) Kernel {
	t.Helper()
	k, err := Fetch(inTime(t), func(message string) { t.Log(message) })
	must(t, err)
	return k
}

// inside is a package whose tests run in the VM.
type inside struct {
	module, pkg string
	tests       []string // patterns, of each of which one has to pass
	driver      bool     // they start the built driver
	disk        int64    // bytes
	modules     []string // besides those of the disks
	argument    string   // the tests' last one
}

// TestProjectQuota runs tests on XFS and ext4 of a kernel that has their project quota: the kernel's behaviour, the
// driver's parts, and csi-sanity against the driver as a whole.
func TestProjectQuota(t *testing.T) {
	kernel := fetch(t)
	volumes := []string{"^TestEnforced", "^TestCopyIntoAnotherPool$", "^TestFullVolumeIsCopied$"}
	if os.Getenv("HPP_E2E") == "nightly" {
		volumes = append(volumes, "^TestCopyErrors$")
	}
	for _, s := range []inside{
		{module: ".", pkg: "./sanity", tests: []string{"^TestSanity$"}, driver: true, disk: 2 << 30},
		{module: "..", pkg: "./src/driver/internal/volume", disk: 512 << 20, tests: volumes},
		{
			module: "..", pkg: "./src/driver/internal/quota", disk: 512 << 20,
			tests: []string{"^TestVM", "^TestLimits$", "^TestMake"},
		},
		{
			module: "..", pkg: "./src/internal/kernel/projectquota", disk: 512 << 20,
			tests: []string{"^TestVM", "^TestLayout", "^TestInvalid", "^TestProbeElsewhere"},
		},
	} {
		t.Run(filepath.Base(s.pkg), func(t *testing.T) {
			t.Parallel()
			s.run(t, kernel)
		})
	}
}

// TestNFS runs csi-sanity on NFS, and two drivers that share it: the VM's kernel serves what it mounts.
func TestNFS(t *testing.T) {
	inside{
		module: ".", pkg: "./sanity", tests: []string{"^TestSanity$", "^TestNFS$"}, driver: true, disk: 2 << 30,
		modules: []string{"nfsd", "nfsv4"}, argument: "shared-nfs",
	}.run(t, fetch(t))
}

func (s inside) run(t *testing.T, kernel Kernel) {
	t.Helper()
	dir := folder(t, "quota")
	files := map[string]string{"test": filepath.Join(dir, "test")}
	must(t, BuildTest(inTime(t), files["test"], s.module, s.pkg))
	if s.driver {
		files["driver"] = filepath.Join(dir, "driver")
		must(t, BuildDriver(inTime(t), files["driver"]))
	}
	disks := map[string]string{}
	for name, mkfs := range map[string][]string{
		"xfs":        {"mkfs.xfs"},
		"ext4":       {"mkfs.ext4", "-O", "quota,project"},
		"ext4-plain": {"mkfs.ext4"},
		"ext4-large": {"mkfs.ext4", "-O", "quota,project", "-T", "largefile"},
	} {
		disks[name] = filepath.Join(dir, name)
		must(t, Image(inTime(t), disks[name], s.disk, mkfs[0], mkfs[1:]...))
	}
	m := boot(t, Config{
		Kernel: kernel, Modules: append([]string{"xfs", "ext4", "quota_v2"}, s.modules...), Disks: disks, Files: files,
		Command: []string{"/test", "-test.v", "-test.run", strings.Join(s.tests, "|"), s.argument}, Dir: dir,
	})
	var said []string
	for line, ok := m.Next(); ok; line, ok = m.Next() {
		t.Log(line)
		said = append(said, line)
	}
	must(t, m.Wait())
	if left := unpassed(said, s.tests); len(left) > 0 {
		t.Errorf("no test passed of those that match %q: was it renamed?", left)
	}
}

// unpassed are the patterns that no test has passed for, going by a test binary's lines. It exits with 0 where none
// matches, too, and where all are skipped.
func unpassed(lines, patterns []string) (left []string) {
	const passed = "--- PASS: "
	for _, pattern := range patterns {
		match := regexp.MustCompile(pattern)
		if !slices.ContainsFunc(lines, func(line string) bool {
			test, is := strings.CutPrefix(line, passed)
			name, _, _ := strings.Cut(test, " ")
			return is && match.MatchString(name)
		}) {
			left = append(left, pattern)
		}
	}
	return left
}
