package standin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLacksSysResourceReadsBit24OfTheBoundingSet(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n": true,
		"CapBnd:\t000001ffffffffff\n":                       false,
		"CapEff:\t0\nCapBnd:\t0000000001000000\n":           false,
		"CapBnd:\t0000000000000000\n":                       true,
	} {
		got, err := lacksSysResource(status)
		if err != nil || got != want {
			t.Errorf("%q: %t, %v; want %t", status, got, err, want)
		}
	}
	for _, status := range []string{"", "CapEff:\t0\n", "CapBnd:\tnonsense\n"} {
		if _, err := lacksSysResource(status); err == nil {
			t.Errorf("%q: no error", status)
		}
	}
}

// The stand-in is run for real, in front of a docker that prints its arguments.
func TestStandInAsksForTheSameByOtherMeans(t *testing.T) {
	bin := t.TempDir()
	fake := "#!/bin/sh\nfor a do printf '%s\\n' \"$a\"; done\n"
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	folder := t.TempDir()
	for range 2 { // the second call must not make the stand-in call itself
		if err := Use(folder); err != nil {
			t.Fatal(err)
		}
	}
	rights := []string{
		"--cap-add=ALL", "--cap-drop=SYS_RESOURCE", "--security-opt", "systempaths=unconfined", "--device-cgroup-rule",
		"a *:* rwm",
	}
	for name, test := range map[string]struct{ args, want []string }{
		"run": {
			[]string{"run", "--name", "n", "--privileged", "-e", "A=b c", "image", "sh", "-c", "echo --privileged"},
			join([]string{"run", "--name", "n"}, rights,
				[]string{"-e", "A=b c", "image", "sh", "-c", "echo --privileged"}),
		},
		"run, the command has the same word": {
			[]string{"run", "--privileged", "image", "tool", "--privileged"},
			join([]string{"run"}, rights, []string{"image", "tool", "--privileged"}),
		},
		"create": {
			[]string{"create", "--privileged", "image"}, join([]string{"create"}, rights, []string{"image"}),
		},
		"run, unprivileged": {[]string{"run", "image"}, []string{"run", "image"}},
		"exec":              {[]string{"exec", "--privileged", "-i", "n", "sh"}, []string{"exec", "-i", "n", "sh"}},
		"others, unchanged": {
			[]string{"ps", "--filter", "label=--privileged", ""}, []string{"ps", "--filter", "label=--privileged", ""},
		},
		"nothing, unchanged": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command("docker", test.args...).Output()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if len(out) > 0 {
				got = strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("docker was called with (-want +got):\n%s", diff)
			}
		})
	}
}

func join(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// TestStandInRunsAtOnce, although other programs are started while it is written.
func TestStandInRunsAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "docker")
	over := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					if err := exec.Command("true").Run(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	long := "#!/bin/sh\nexit\n" + strings.Repeat("#", 1<<20) // takes a while to write
	for range 200 {
		if err := replaceFile(file, long); err != nil {
			t.Error(err)
		}
		if err := exec.Command(file).Run(); err != nil {
			t.Error(err)
		}
	}
	close(over)
	others.Wait()
}
