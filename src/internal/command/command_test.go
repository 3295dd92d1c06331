package command_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
)

func TestRunGivesTheExitCode(t *testing.T) {
	var said strings.Builder
	if code := command.Run("driver", &said, func(context.Context) error { return nil }); code != 0 || said.Len() > 0 {
		t.Errorf("done: code %d, said %q", code, said.String())
	}
	if code := command.Run("driver", &said, func(context.Context) error { return errors.New("no room") }); code != 1 ||
		said.String() != "driver: no room\n" {
		t.Errorf("failed: code %d, said %q", code, said.String())
	}
}

func TestRunEndsAtTheFirstSignal(t *testing.T) {
	code := command.Run("driver", &strings.Builder{}, func(ctx context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if code != 0 {
		t.Errorf("code %d, want 0", code)
	}
}

func TestIsAddress(t *testing.T) {
	for text, want := range map[string]bool{
		":9898": true, "127.0.0.1:0": true, "[::1]:65535": true, "host:80": true,
		"": false, "9898": false, ":65536": false, ":http": false, ":-1": false, "::1:80": false,
	} {
		if got := command.IsAddress(text); got != want {
			t.Errorf("IsAddress(%q) = %v, want %v", text, got, want)
		}
	}
}
