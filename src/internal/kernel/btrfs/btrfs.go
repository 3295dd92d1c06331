// Package btrfs makes and destroys subvolumes and keeps them to a size with qgroups. It works on open directories, which
// must not be O_PATH ones, and knows nothing of volumes. Structures, numbers and constants are those of the kernel's
// include/uapi/linux/btrfs.h and btrfs_tree.h.
//
// Everything but CreateSubvolume, Is, IsSubvolume and SubvolumeID needs CAP_SYS_ADMIN in the initial user namespace.
package btrfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Is tells whether f is on btrfs.
func Is(f *os.File) (bool, error) {
	var st unix.Statfs_t
	for {
		err := unix.Fstatfs(int(f.Fd()), &st)
		switch {
		case err == nil:
			return int64(st.Type) == unix.BTRFS_SUPER_MAGIC, nil
		case !errors.Is(err, unix.EINTR):
			return false, &fs.PathError{Op: "statfs", Path: f.Name(), Err: err}
		}
	}
}
