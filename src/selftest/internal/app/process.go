package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// sleep waits until ctx ends or d has passed; d of zero waits for ctx alone.
func sleep(ctx context.Context, d time.Duration) {
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	<-ctx.Done()
}

// appendLoop appends a numbered line at once and then each period, durably,
// until ctx ends. A test sees from the numbers whether writing ever stopped,
// and only a full disk is waited for: a restart would begin with 1 again.
func appendLoop(ctx context.Context, s streams, path string, period time.Duration) error {
	//nolint:gosec // other users of the volume read it
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	n, line := 1, []byte("1\n")
	for {
		line, err = appendDurably(f, line)
		switch {
		case err == nil:
			n++
			line = fmt.Appendf(nil, "%d\n", n)
		case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
			_, _ = fmt.Fprintf(s.err, "selftest: line %d waits for room: %v\n", n, err)
		default:
			return errors.Join(fmt.Errorf("line %d: %w", n, err), f.Close())
		}
		select {
		case <-ctx.Done():
			_, err := fmt.Fprintf(s.out, "%d lines\n", n-1)
			return errors.Join(err, f.Close())
		case <-tick.C:
		}
	}
}

// appendDurably returns what did not fit, for the next try.
func appendDurably(f *os.File, line []byte) (rest []byte, err error) {
	n, err := f.Write(line)
	if err != nil {
		return line[n:], fmt.Errorf("append: %w", err)
	}
	return nil, f.Sync()
}

func listDirectory(out io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(dir, e.Name()), &st); err != nil {
			return fmt.Errorf("look at %s in %s: %w", e.Name(), dir, err)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s %d %d %d %s\n", info.Mode(), st.Uid, st.Gid, st.Size, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func identity(out io.Writer) error {
	groups, err := os.Getgroups()
	if err != nil {
		return fmt.Errorf("read supplementary groups: %w", err)
	}
	_, err = fmt.Fprintf(out, "uid=%d gid=%d groups=%v\n", os.Getuid(), os.Getgid(), groups)
	return err
}
