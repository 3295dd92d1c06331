package process_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

func TestRunGivesTheExitCode(t *testing.T) {
	var said strings.Builder
	if code := process.Run("driver", &said, func(context.Context) error { return nil }); code != 0 || said.Len() > 0 {
		t.Errorf("done: code %d, said %q", code, said.String())
	}
	if code := process.Run("driver", &said, func(context.Context) error { return errors.New("no room") }); code != 1 ||
		said.String() != "driver: no room\n" {
		t.Errorf("failed: code %d, said %q", code, said.String())
	}
}

func TestRunEndsAtTheFirstSignal(t *testing.T) {
	code := process.Run("driver", &strings.Builder{}, func(ctx context.Context) error {
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

func TestTheLockIsForOne(t *testing.T) {
	dir := t.TempDir()
	unlock, err := process.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := process.Lock(dir); err == nil || !strings.Contains(err.Error(), "has locked "+dir+"/lock") {
		t.Errorf("a second one: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := process.Lock(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = again()
}
