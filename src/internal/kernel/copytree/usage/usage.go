// Package usage counts what a tree uses of its disk while it is made, without a walk through it: what fstat(2) says of
// each file when it is closed, and what no file's blocks are.
package usage

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

const (
	// inode is what a new file uses beside its blocks, in bytes: that of an inode of XFS; ext4 has smaller ones.
	inode = 512
	// names is in how many items of its trees btrfs has each name.
	names = 3
	// inline is how long data is, in bytes, that btrfs has among its metadata (max_inline of btrfs(5)), while st_blocks
	// is that of a whole block.
	inline = 2048
	// ahead is how much more a file may use than its size, in bytes, such as for its attributes. What else it uses XFS
	// has allocated ahead for who writes, and takes back.
	ahead = 64 << 10
)

// Count is how much more of its disk a tree uses, in bytes, than when the count began.
type Count struct {
	Bytes int64

	btrfs bool
}

// Begin says which tree it is, before anything of that is counted.
func (c *Count) Begin(root *os.File) error {
	on := unix.Statfs_t{}
	err := unix.Fstatfs(int(root.Fd()), &on)
	c.btrfs = on.Type == unix.BTRFS_SUPER_MAGIC
	return openat.Failed("statfs", root.Name(), err)
}

// UsedBy is what a file or directory uses, in bytes, beside its name.
func (c *Count) UsedBy(st *unix.Stat_t) int64 {
	if c.btrfs && st.Size <= inline {
		return min(st.Size, st.Blocks*512)
	}
	return min(st.Blocks*512, st.Size+ahead)
}

// Add adds what an open file or directory uses beyond what is counted of it, in bytes. What is open fails fstat(2) only
// where the disk fails, and then everything does.
func (c *Count) Add(f *os.File, counted int64) {
	if st, err := openat.Stat(f); err == nil {
		c.Bytes += c.UsedBy(st) - counted
	}
}

// AddName adds a new name, of a new file or another one.
func (c *Count) AddName(name string) { c.Bytes += inode + names*int64(len(name)) }

// AddXattrs adds extended attributes that are in no block of their file.
func (c *Count) AddXattrs(xattrs map[string][]byte) {
	if !c.btrfs {
		return
	}
	for name, value := range xattrs {
		c.Bytes += int64(len(name) + len(value))
	}
}
