package disk_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// allocated is what the names take, as stat(2) says.
func allocated(t *testing.T, names ...string) (bytes int64) {
	t.Helper()
	for _, name := range names {
		info, err := os.Lstat(name)
		must(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("%T", info.Sys())
		}
		bytes += st.Blocks * 512
	}
	return bytes
}

// TestUsage counts what du(1) counts: each file once, holes not, and nothing that a link or a mount leads to. It is the
// same in one go and in one for each file.
func TestUsage(t *testing.T) {
	d, path := openTemp(t)
	tree := path + "/tree"
	must(t, os.MkdirAll(tree+"/dir/sub", 0o700))
	must(t, os.MkdirAll(tree+"/mounted", 0o700))
	must(t, os.WriteFile(tree+"/file", make([]byte, 100_000), 0o000))
	must(t, os.Link(tree+"/file", tree+"/dir/again"))
	must(t, os.Link(tree+"/file", path+"/outside"))
	must(t, os.WriteFile(tree+"/dir/sub/sparse", nil, 0o600))
	must(t, os.Truncate(tree+"/dir/sub/sparse", 1<<30))
	must(t, os.Symlink(path, tree+"/link"))
	must(t, unix.Mkfifo(tree+"/fifo", 0o600))
	must(t, os.WriteFile(path+"/other", make([]byte, 1<<20), 0o600))
	must(t, os.Symlink("../other", tree+"/"+strings.Repeat("x", 200)))
	mounttest.Tmpfs(t, tree+"/mounted", "")
	must(t, os.WriteFile(tree+"/mounted/more", make([]byte, 1<<20), 0o600))
	want := allocated(t, tree, tree+"/dir", tree+"/dir/sub", tree+"/file", tree+"/dir/sub/sparse", tree+"/link",
		tree+"/fifo", tree+"/"+strings.Repeat("x", 200))
	if want < 100_000 || want > 1<<20 {
		t.Fatalf("%d bytes are allocated", want)
	}
	var once, stepped disk.Usage
	must(t, once.Measure(t.Context(), d, "tree", func(context.Context) error { return nil }))
	for range 100 {
		steps := 0
		err := stepped.Measure(t.Context(), d, "tree", func(context.Context) error {
			if steps++; steps > 1 {
				return errTired
			}
			return nil
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errTired) {
			t.Fatal(err)
		}
	}
	for name, got := range map[string]disk.Usage{"once": once, "stepped": stepped} {
		if got.Files != 8 || got.Bytes != want {
			t.Errorf("%s: %d bytes in %d files, want %d in 8", name, got.Bytes, got.Files, want)
		}
	}
}
