package usage_test

import (
	"errors"
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

const mebibyte = 1 << 20

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begun is a count on a new filesystem.
func begun(t *testing.T, kind string) (c *usage.Count, root string) {
	t.Helper()
	root = mounttest.Disk(t, kind, 1<<30)
	dir, err := os.Open(root)
	must(t, err)
	c = &usage.Count{}
	must(t, errors.Join(c.Begin(dir), dir.Close()))
	return c, root
}

// add adds to a file, opens and closes it for that, and counts it.
func add(t *testing.T, c *usage.Count, path string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(t, err)
	st, err := openat.Stat(f)
	must(t, err)
	had := c.UsedBy(st)
	_, err = f.Write(data)
	must(t, err)
	c.Add(f, had)
	must(t, f.Close())
}

// TestAllocatedAhead counts once what XFS allocates ahead for who writes, however often it takes that back meanwhile.
func TestAllocatedAhead(t *testing.T) {
	c, root := begun(t, "xfs")
	for range 16 {
		add(t, c, root+"/f", make([]byte, mebibyte))
		mounttest.Run(t, "xfs_spaceman", "-c", "prealloc -s", root)
	}
	if c.Bytes < 16*mebibyte || c.Bytes > 32*mebibyte {
		t.Errorf("%d KiB are counted for a file of 16 MiB", c.Bytes>>10)
	}
}

// TestBtrfs counts no whole block for what has none, and what is in no file's blocks.
func TestBtrfs(t *testing.T) {
	c, root := begun(t, "btrfs")
	add(t, c, root+"/short", make([]byte, 100))
	if c.Bytes != 100 {
		t.Errorf("%d bytes are counted for 100", c.Bytes)
	}
	c.AddXattrs(map[string][]byte{"user.a": make([]byte, 1000)})
	if c.Bytes != 1106 {
		t.Errorf("%d bytes are counted with an attribute of 1006", c.Bytes)
	}
	add(t, c, root+"/long", make([]byte, 5000))
	if c.Bytes != 1106+8192 {
		t.Errorf("%d bytes are counted with two blocks", c.Bytes)
	}
}
