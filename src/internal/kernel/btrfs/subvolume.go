// Package btrfs makes and destroys subvolumes and keeps them to a size with qgroups. It works on open directories,
// which must not be O_PATH ones, and knows nothing of volumes. Structures, numbers of requests and constants are those
// of the kernel's include/uapi/linux/btrfs.h and btrfs_tree.h.
//
// Everything but CreateSubvolume, IsSubvolume and SubvolumeID needs CAP_SYS_ADMIN in the initial user namespace.
package btrfs

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
)

// CreateSubvolume makes an empty subvolume (0777 less the umask, owned by the caller) in parent. It is a member of
// group from the beginning. The subvolume, its membership and whatever was changed before it are on the disk after an
// fsync of parent, or at once before Linux 6.6.
func CreateSubvolume(parent *os.File, name string, group QgroupID) error {
	inherit := &qgroupInherit{qgroups: 1, qgroup: [1]QgroupID{group}}
	args := &volArgsV2{flags: subvolumeQgroupInherit, inherit: inherit, size: uint64(unsafe.Sizeof(*inherit))}
	return doNamed(parent, "create subvolume", 24, name, args)
}

// DestroySubvolume removes a subvolume whatever files it holds; the kernel frees their space in the background. One
// that holds other subvolumes is ENOTEMPTY, a directory that is none EINVAL. The name is gone from the disk afterwards.
func DestroySubvolume(parent *os.File, name string) error {
	return doNamed(parent, "destroy subvolume", 63, name, &volArgsV2{})
}

// doNamed makes a request about a name in parent. What is not one name is refused; the kernel would cut it at a NUL.
func doNamed(parent *os.File, op string, number byte, name string, args *volArgsV2) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return &fs.PathError{Op: op, Path: parent.Name() + "/" + name, Err: fs.ErrInvalid}
	}
	copy(args.name[:], name)
	err := do(parent, op, ioctl.W, number, args)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		path.Path += "/" + name
	}
	return err
}

// IsSubvolume reports whether f is the root of a subvolume: on btrfs those, and nothing else, have the inode number
// 256.
func IsSubvolume(f *os.File) (bool, error) {
	var on unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(f.Fd()), &on), unix.Fstat(int(f.Fd()), &st)); err != nil {
		return false, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return on.Type == unix.BTRFS_SUPER_MAGIC && st.Ino == firstFree, nil
}

// SubvolumeID is the ID of the subvolume that has f as its root, and 0 where f is the root of none. IDs are never used
// again.
func SubvolumeID(f *os.File) (uint64, error) {
	if is, err := IsSubvolume(f); err != nil || !is {
		return 0, err
	}
	args := &inoLookupArgs{object: firstFree} // tree 0: the one that f is in
	err := do(f, "find subvolume", ioctl.RW, 18, args)
	return args.tree, err
}

// Rejoin makes every subvolume below this one a member of group and of no other. A process that may write there can
// leave the group, by naming other qgroups, or none, when it makes a subvolume (BTRFS_SUBVOL_QGROUP_INHERIT). f must be
// outside of what group limits: a full one would make it EDQUOT.
func Rejoin(f *os.File, id uint64, group QgroupID) error {
	nested, err := nested(f, id)
	if err != nil {
		return err
	}
	for _, id := range nested {
		err := join(f, NewQgroupID(0, id), group)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // not there: destroyed meanwhile
			return err
		}
	}
	return nil
}

// join makes a qgroup a member of just one other, or of none where that is 0.
func join(f *os.File, member, group QgroupID) error {
	groups, err := Groups(f, member)
	for _, q := range groups {
		if q != group {
			err = errors.Join(err, UnassignQgroup(f, member, q))
		}
	}
	if err != nil || group == 0 || slices.Contains(groups, group) {
		return err
	}
	return AssignQgroup(f, member, group)
}

// nested lists the ids of all subvolumes below this one, each after those that it holds itself. f is any directory of
// the filesystem. It costs one system call where there are none, and one for each that there is.
func nested(f *os.File, id uint64) ([]uint64, error) {
	found := []uint64{id}
	for i := 0; i < len(found); i++ { // breadth first: a subvolume comes before what it holds
		err := search(f, all(rootTree, found[i], typeRootRef), func(child uint64, _ []byte) { found = append(found, child) })
		if err != nil {
			return nil, err
		}
	}
	found = found[1:]
	slices.Reverse(found)
	return found, nil
}

// linked reports whether the subvolume that a qgroup of level 0 counts lies in a directory, or is the filesystem's own.
// One that was destroyed does not, long before the kernel has finished removing it.
func linked(f *os.File, q QgroupID) (there bool, err error) {
	err = search(f, all(rootTree, q.ID(), typeRootBackref), func(uint64, []byte) { there = true })
	return there || q.ID() == topLevel, err
}
