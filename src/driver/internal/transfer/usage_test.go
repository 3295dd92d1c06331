package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

const (
	mebibyte = 1 << 20
	steps    = 50 // of a hostile batch
	block    = 64 << 10
	limit    = (2 + 1024) * mebibyte // of the disk, for a copy of 1 MiB
)

// disk is a new filesystem without quota, kept in memory, made with options of mkfs(8).
func disk(t *testing.T, kind string, options ...string) string {
	t.Helper()
	memory, root := t.TempDir(), t.TempDir()
	mounttest.Tmpfs(t, memory, "")
	mounttest.Image(t, memory+"/image", "", 4<<30)
	mounttest.Run(t, "mkfs."+kind, append(options, "-q", memory+"/image")...)
	mounttest.Loop(t, memory+"/image", root)
	return root
}

// usage is what du(1) says of a tree, in bytes.
func usage(t *testing.T, path string) (bytes int64) {
	t.Helper()
	seen := map[uint64]bool{}
	must(t, filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !seen[st.Ino] {
			seen[st.Ino] = true
			bytes += st.Blocks * 512
		}
		return err
	}))
	return bytes
}

// coarse is an ext4 on which all that uses a block of 4 KiB elsewhere uses one of 64 KiB, so that few are enough.
func coarse(t *testing.T) string {
	t.Helper()
	return disk(t, "ext4", "-O", "bigalloc", "-C", strconv.Itoa(block))
}

// hostileBatches are the entries of batches with little data that use much of a disk.
func hostileBatches() map[string]func(batch int) []*entry.Entry {
	return map[string]func(batch int) []*entry.Entry{
		"writes far apart": func(batch int) (es []*entry.Entry) {
			es = append(es, entry.New(entry.GoOnFile, "f"))
			if batch == 0 {
				es[0].Kind = entry.BeginFile
			}
			for i := range steps {
				head := entry.Head{Kind: entry.WriteData, Offset: int64(batch*steps+i) * 2 * block}
				es = append(es, &entry.Entry{Head: head, Data: []byte{1}})
			}
			return es
		},
		"a byte in each file": func(batch int) (es []*entry.Entry) {
			for i := range steps {
				data, end := entry.New(entry.WriteData, ""), entry.New(entry.EndFile, "")
				data.Data, end.Size = []byte{1}, 1
				es = append(es, entry.New(entry.BeginFile, fmt.Sprint("f", batch, "-", i)), data, end)
			}
			return es
		},
		"directories": func(batch int) (es []*entry.Entry) {
			for i := range steps {
				enter := entry.New(entry.EnterDir, fmt.Sprint("d", batch, "-", i))
				es = append(es, enter, entry.New(entry.LeaveDir, ""))
			}
			return es
		},
		"long links": func(batch int) (es []*entry.Entry) {
			for i := range steps {
				e := entry.New(entry.MakeOther, fmt.Sprint("l", batch, "-", i))
				e.Mode, e.Data = unix.S_IFLNK, []byte(strings.Repeat("l", 100))
				es = append(es, e)
			}
			return es
		},
		"extended attributes": func(batch int) (es []*entry.Entry) {
			for i := range steps {
				end := entry.New(entry.EndFile, "")
				end.Xattrs = map[string][]byte{"user.a": make([]byte, 200)}
				es = append(es, entry.New(entry.BeginFile, fmt.Sprint("x", batch, "-", i)), end)
			}
			return es
		},
	}
}

// fill has batches that somebody hostile makes written to a directory, as many as take twice what a copy may use of its
// disk, and goes on after each that is interrupted. It gives what that ends with.
func fill(t *testing.T, target string, entries func(batch int) []*entry.Entry, interrupted bool) error {
	t.Helper()
	to, batches, enough := open(t, target), 0, 2*limit/block/steps
	next := func(context.Context, []byte, bool) (b copytree.Batch, err error) {
		b.Entries = entry.Begin()
		for _, e := range entries(batches) {
			if b.Entries = e.AppendTo(b.Entries); e.Kind == entry.WriteData {
				b.Bytes += int64(len(e.Data))
			}
		}
		if interrupted {
			b.Entries = append(b.Entries, "garbage"...)
		}
		batches++
		b.Last = batches >= enough
		return b, nil
	}
	at := transfer.Begin()
	for {
		j := &transfer.Job{
			Next:  next,
			Write: func(_ context.Context, work func(from, to *os.File) error) error { return work(nil, to) },
			Most:  mebibyte,
		}
		err := j.Run(t.Context(), at)
		if batches >= enough || !errors.Is(err, copytree.ErrBatch) {
			return err
		}
		stored, err := j.Progress().Encode()
		must(t, err)
		at, err = transfer.Decode(stored)
		must(t, err)
	}
}

// TestHostileUsage ends what uses far more of the disk than its size, however little data that is, also if each of its
// batches is interrupted: nothing else limits it where the filesystem has no quota.
func TestHostileUsage(t *testing.T) {
	for name, entries := range hostileBatches() {
		for _, interrupted := range []bool{false, true} {
			if interrupted && name != "directories" && name != "writes far apart" {
				continue // the others say nothing more about that
			}
			t.Run(fmt.Sprint(name, ", interrupted ", interrupted), func(t *testing.T) {
				target := coarse(t) + "/target"
				must(t, os.Mkdir(target, 0o700))
				err := fill(t, target, entries, interrupted)
				if !errors.Is(err, transfer.ErrTooLarge) || !strings.Contains(err.Error(), "of the disk") {
					t.Errorf("error %v", err)
				}
				if is := usage(t, target); is > limit+(steps+1)*block || is < limit/2 {
					t.Errorf("it ended with %d MiB of the disk", is/mebibyte)
				}
			})
		}
	}
}

// TestLongPositions refuses what cannot be stored, so that what was counted always is.
func TestLongPositions(t *testing.T) {
	j, target, _ := job(t)
	next := j.Next
	j.Next = func(ctx context.Context, from []byte, clone bool) (copytree.Batch, error) {
		b, err := next(ctx, from, clone)
		b.Next = make([]byte, 512<<10+1)
		return b, err
	}
	if err := j.Run(t.Context(), transfer.Begin()); !errors.Is(err, copytree.ErrBatch) {
		t.Errorf("error %v", err)
	}
	if names, err := os.ReadDir(target); err != nil || len(names) > 0 {
		t.Errorf("%v, %v were written", names, err)
	}
}

// small makes a tree that uses much more of its disk than it has data.
func small(t *testing.T, root string) {
	t.Helper()
	for d := range 8 {
		dir := fmt.Sprint(root, "/", d)
		must(t, os.MkdirAll(dir+"/empty", 0o750))
		for i := range 100 {
			name := fmt.Sprint(dir, "/", i)
			must(t, os.WriteFile(name, []byte(strings.Repeat(name, 20)), 0o640))
			switch i % 10 {
			case 0:
				must(t, os.Link(name, name+" linked"))
			case 1:
				must(t, unix.Setxattr(name, "user.a", make([]byte, 1000), 0))
			case 2:
				must(t, os.Symlink(strings.Repeat("l", 200), name+" link"))
			case 3:
				must(t, os.WriteFile(name+" empty", nil, 0o600))
			}
		}
		f, err := os.Create(dir + "/sparse")
		must(t, err)
		for i := range int64(100) {
			_, err = f.WriteAt([]byte("data"), i*mebibyte)
			must(t, err)
		}
		must(t, errors.Join(f.Truncate(200*mebibyte), f.Close()))
	}
	must(t, os.WriteFile(root+"/large", make([]byte, 16*mebibyte), 0o600))
}

// described is what is in a tree, by path.
func described(t *testing.T, root string) map[string]string {
	t.Helper()
	is := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := e.Info()
		must(t, err)
		says := fmt.Sprint(info.Mode(), info.ModTime())
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !e.IsDir() {
			says += fmt.Sprint(" size ", st.Size, " names ", st.Nlink)
		}
		if e.Type() == 0 && info.Size() < mebibyte {
			data, err := os.ReadFile(path)
			must(t, err)
			n, _ := unix.Getxattr(path, "user.a", nil)
			says += fmt.Sprint(string(data), " attribute ", n)
		}
		is[strings.TrimPrefix(path, root)] = says
		return nil
	}))
	return is
}

// TestHonestUsage copies a tree of which a quota would let its volume have no more than it uses, and counts what it
// uses, also when it was interrupted.
func TestHonestUsage(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			top := disk(t, kind)
			source, target := top+"/source", top+"/target"
			must(t, errors.Join(os.Mkdir(source, 0o700), os.Mkdir(target, 0o700)))
			small(t, source)
			counted := copyCutting(t, source, target)
			is, want, uses := described(t, target), described(t, source), usage(t, target)
			if !maps.Equal(is, want) {
				t.Errorf("%d names are copied of %d", len(is), len(want))
			}
			for path := range is {
				uses += 512 + 3*int64(len(filepath.Base(path)))
			}
			if counted > uses+uses/20 || counted < uses-uses/20 && kind != "btrfs" {
				t.Errorf("%d bytes were counted, want %d", counted, uses)
			}
		})
	}
}

// copyCutting copies a tree, with what it uses as its size, and cuts that again and again. It gives what was counted.
func copyCutting(t *testing.T, source, target string) (counted int64) {
	t.Helper()
	from, to, reader := open(t, source), open(t, target), &copytree.Reader{}
	count, cuts, cut := 0, 0, errors.New("cut")
	j := &transfer.Job{
		Next: func(ctx context.Context, at []byte, _ bool) (copytree.Batch, error) {
			if count++; count%10 == 0 {
				cuts++
				return copytree.Batch{}, cut
			}
			return reader.Next(ctx, from, at, transfer.BatchSize)
		},
		Write: func(_ context.Context, work func(from, to *os.File) error) error { return work(nil, to) },
		Save:  func(context.Context, transfer.Place) error { return nil },
		Most:  usage(t, source),
	}
	err := j.Run(t.Context(), transfer.Begin())
	for errors.Is(err, cut) {
		err = j.Run(t.Context(), j.Progress())
	}
	if must(t, err); cuts < 3 {
		t.Errorf("it was cut %d times", cuts)
	}
	return j.Progress().Usage
}
