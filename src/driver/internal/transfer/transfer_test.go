package transfer_test

import (
	"context"
	"errors"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

const (
	size  = 64 << 10
	names = 5
)

// job copies a file with several names step by step, and reads it for each of them, as it does after restarts.
func job(t *testing.T) (j *transfer.Job, target string, saved *[]transfer.Place) {
	t.Helper()
	source, target := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(source+"/0", make([]byte, size), 0o600))
	for n := 1; n < names; n++ {
		must(t, os.Link(source+"/0", source+"/"+strconv.Itoa(n)))
	}
	saved = &[]transfer.Place{}
	from, to := open(t, source), open(t, target)
	return &transfer.Job{
		Next: func(ctx context.Context, at []byte, _ bool) (copytree.Batch, error) {
			return (&copytree.Reader{}).Next(ctx, from, at, 1)
		},
		Write: func(_ context.Context, work func(from, to *os.File) error) error { return work(nil, to) },
		Save: func(_ context.Context, p transfer.Place) error {
			*saved = append(*saved, p)
			return nil
		},
		Most: size,
	}, target, saved
}

func same(t *testing.T, target string) {
	t.Helper()
	first, err := os.Stat(target + "/0")
	must(t, err)
	for n := 1; n < names; n++ {
		other, err := os.Stat(target + "/" + strconv.Itoa(n))
		if must(t, err); !os.SameFile(first, other) {
			t.Errorf("%d is another file", n)
		}
	}
}

// TestManyNames counts the data of a file once, however often it is read.
func TestManyNames(t *testing.T) {
	j, target, saved := job(t)
	must(t, j.Run(t.Context(), transfer.Begin()))
	if p := j.Progress(); p.Bytes != size || p.Files != names {
		t.Errorf("copied %+v", p)
	}
	if same(t, target); len(*saved) != 0 {
		t.Errorf("saved %+v", *saved)
	}
	j, _, _ = job(t)
	j.Most = size - 1
	if err := j.Run(t.Context(), transfer.Begin()); !errors.Is(err, transfer.ErrTooLarge) {
		t.Errorf("copied more than the most: %v", err)
	}
}

// TestBatchesWithHostileNumbers: nothing of a batch is written whose numbers would have the sums begin anew.
func TestBatchesWithHostileNumbers(t *testing.T) {
	for name, hostile := range map[string]copytree.Batch{
		"bytes": {Bytes: math.MaxInt64}, "negative bytes": {Bytes: -1}, "least bytes": {Bytes: math.MinInt64},
		"files": {Files: math.MaxInt64}, "negative files": {Files: -1},
		"changed": {Changed: math.MaxInt64}, "negative changed": {Changed: -1},
		"skipped": {Skipped: math.MaxInt64}, "negative skipped": {Skipped: -1},
	} {
		j, _, _ := job(t)
		next, write, written := j.Next, j.Write, 0
		j.Next = func(ctx context.Context, from []byte, clone bool) (copytree.Batch, error) {
			b, err := next(ctx, from, clone)
			if len(from) > 0 {
				b.Bytes, b.Files, b.Changed, b.Skipped = hostile.Bytes, hostile.Files, hostile.Changed, hostile.Skipped
			}
			return b, err
		}
		j.Write = func(ctx context.Context, work func(from, to *os.File) error) error {
			written++
			return write(ctx, work)
		}
		at := transfer.Begin()
		at.Bytes, at.Files, at.Changed, at.Skipped = 1, 1, 1, 1
		if err := j.Run(t.Context(), at); !errors.Is(err, copytree.ErrBatch) || written != 1 {
			t.Errorf("%s: %v, and %d batches are written", name, err, written)
		}
	}
}

// TestCrashAtTheEnd has the driver killed when names among the links are being removed: a copy that was gone on with
// saves that all is copied, since from an earlier place other names of files would become files of their own.
func TestCrashAtTheEnd(t *testing.T) {
	j, target, saved := job(t)
	write, seen := j.Write, 0
	interrupted := errors.New("interrupted")
	j.Write = func(ctx context.Context, work func(from, to *os.File) error) error {
		if p := j.Progress(); p.Files == 1 && p.Bytes == size {
			seen++
		}
		if seen > 1 { // the first name is there, and the next one not yet
			return interrupted
		}
		return write(ctx, work)
	}
	if err := j.Run(t.Context(), transfer.Begin()); !errors.Is(err, interrupted) {
		t.Fatal(err)
	}
	at, next, last := j.Progress(), j.Next, 0
	j.Next = func(ctx context.Context, from []byte, clone bool) (copytree.Batch, error) {
		b, err := next(ctx, from, clone)
		if b.Last {
			last = 1
		}
		return b, err
	}
	j.Write = func(ctx context.Context, work func(from, to *os.File) error) error {
		if last > 0 {
			last++
		}
		if last > 2 { // behind the last batch
			must(t, os.RemoveAll(target+"/"+at.Links))
			return interrupted
		}
		return write(ctx, work)
	}
	if err := j.Run(t.Context(), at); !errors.Is(err, interrupted) {
		t.Fatal(err)
	}
	if len(*saved) > 0 {
		at = (*saved)[len(*saved)-1]
	}
	j.Next, j.Write = next, write
	must(t, j.Run(t.Context(), at))
	same(t, target)
}
