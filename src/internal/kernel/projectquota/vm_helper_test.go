//go:build vm

package projectquota

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// helper is this binary, told to do one thing in a process of its own.
func helper(what, path string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "HPP_HELPER="+what, "HPP_PATH="+path)
	return cmd
}

func TestMain(m *testing.M) {
	if os.Getenv("HPP_HELPER") == "leave" {
		if err := leave(os.Getenv("HPP_PATH")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// leave takes a directory out of its project.
func leave(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return SetProjectID(f, 0, false)
}
