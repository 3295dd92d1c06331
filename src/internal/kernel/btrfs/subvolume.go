// Package btrfs makes and destroys subvolumes and keeps them to a size with qgroups. It works on open directories,
// which must not be O_PATH ones, and knows nothing of volumes. Structures, numbers of requests and constants are those
// of the kernel's include/uapi/linux/btrfs.h and btrfs_tree.h.
//
// Everything but CreateSubvolume, IsSubvolume and SubvolumeID needs CAP_SYS_ADMIN in the initial user namespace.
package btrfs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// CreateSubvolume makes an empty subvolume (0777 less the umask, owned by the caller) in parent. It is a member of
// group from the beginning. The subvolume, its membership and whatever was changed before it are on the disk after an
// fsync of parent, or at once before Linux 6.6.
func CreateSubvolume(parent *os.File, name string, group QgroupID) error {
	return doNamed(parent, "create subvolume", 24, name, memberOf(group))
}

// CreateSnapshot makes a writable snapshot of a subvolume in parent: what the subvolume has at one moment, but for the
// subvolumes inside it. It is a member of group, or where that is 0 of none, from the beginning. What it shares with
// the subvolume counts to that alone. It writes the subvolume's data to the disk first, and is itself on the disk after
// an fsync of parent.
func CreateSnapshot(parent *os.File, name string, subvolume *os.File, group QgroupID) error {
	args := memberOf(group)
	args.fd = int64(subvolume.Fd())
	return doNamed(parent, "snapshot "+subvolume.Name()+" as", 23, name, args)
}

// memberOf are the arguments for a subvolume that is in one group, or where that is 0 in none.
func memberOf(group QgroupID) *volArgsV2 {
	inherit := &qgroupInherit{}
	size := unsafe.Offsetof(inherit.qgroup)
	if group != 0 {
		inherit.qgroups, inherit.qgroup, size = 1, [1]QgroupID{group}, unsafe.Sizeof(*inherit)
	}
	return &volArgsV2{flags: subvolumeQgroupInherit, inherit: inherit, size: uint64(size)}
}

// HasRemoved reports whether the kernel has yet to free what a destroyed subvolume of f's filesystem held, which still
// counts until then.
func HasRemoved(f *os.File) (has bool, err error) {
	want := allItems(rootTree, orphans, typeOrphan)
	want.one = true
	err = search(f, want, func(uint64, []byte) { has = true })
	return has, err
}

// CountNested counts the subvolumes below the one that has f as its root.
func CountNested(f *os.File) (int, error) {
	id, err := SubvolumeID(f)
	if err != nil || id == 0 {
		return 0, err
	}
	if child, err := firstNested(f, id); err != nil || child == 0 {
		return 0, err
	}
	below, err := nested(f, id)
	return len(below), err
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

// IsSubvolume reports whether f is the root of a subvolume: on btrfs just those have the inode number 256.
func IsSubvolume(f *os.File) (bool, error) {
	var on unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(f.Fd()), &on), unix.Fstat(int(f.Fd()), &st)); err != nil {
		return false, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return on.Type == unix.BTRFS_SUPER_MAGIC && st.Ino == firstFree, nil
}

// SubvolumeID is the ID of the subvolume that has f as its root, 0 if f is the root of none. IDs are not used again.
func SubvolumeID(f *os.File) (uint64, error) {
	if is, err := IsSubvolume(f); err != nil || !is {
		return 0, err
	}
	args := &inoLookupArgs{object: firstFree} // tree 0: the one that f is in
	err := do(f, "find subvolume", ioctl.RW, 18, args)
	return args.tree, err
}

// joinQgroup makes a qgroup a member of just one other, or of none where that is 0.
func joinQgroup(f *os.File, member, group QgroupID) error {
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

// linked reports whether the subvolume that a qgroup of level 0 counts lies in a directory, or is the filesystem's own.
// One that was destroyed does not, long before the kernel has finished removing it.
func linked(f *os.File, q QgroupID) (there bool, err error) {
	err = search(f, allItems(rootTree, q.ID(), typeRootBackref), func(uint64, []byte) { there = true })
	return there || q.ID() == topLevel, err
}

// maxBusy is how often DestroyTree starts again because somebody made a subvolume below while it worked.
const maxBusy = 10

// DestroyTree is DestroySubvolume for one that may hold others, at any depth and read-only ones too; they are destroyed
// first, deepest first. step is called before each, and its error ends the work. Where there are others, they and the
// subvolume leave all their qgroups, and lose their own limits: removing a name from a subvolume that is full would be
// EDQUOT. No limit of a qgroup of level 1 or more is changed.
func DestroyTree(ctx context.Context, parent *os.File, name string, step func(context.Context) error) error {
	for tries := 0; ; tries++ {
		if err := destroyNested(ctx, parent, name, step); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
		err := DestroySubvolume(parent, name)
		if !errors.Is(err, unix.ENOTEMPTY) || tries == maxBusy {
			return err
		}
	}
}

func destroyNested(ctx context.Context, parent *os.File, name string, step func(context.Context) error) error {
	top, err := idOf(parent, name)
	if err != nil {
		return err
	}
	// Depth first, so that each step destroys one, however many there are. Below, those on the way down are remembered.
	way, ready := []uint64{top}, ready{}
	for {
		child, err := firstNested(parent, way[len(way)-1])
		if err != nil {
			return err
		}
		if child != 0 {
			way = append(way, child)
			continue
		}
		if len(way) == 1 {
			return nil
		}
		if err := step(ctx); err != nil {
			return err
		}
		for _, id := range way[len(way)-2:] { // above too: its directory changes
			if err := ready.make(parent, id); err != nil {
				return err
			}
		}
		id := way[len(way)-1]
		if err := destroyByID(parent, id); err != nil {
			return fmt.Errorf("destroy nested subvolume %d: %w", id, err)
		}
		delete(ready, id)
		way = way[:len(way)-1]
	}
}

// destroyByID destroys a subvolume, if it is there and empty.
func destroyByID(f *os.File, id uint64) error {
	args := &volArgsV2{flags: subvolumeSpecByID}
	binary.NativeEndian.PutUint64(args.name[:], id)
	destroy := func() error { return do(f, "destroy subvolume", ioctl.W, 63, args) }
	err := destroy()
	if errors.Is(err, unix.EPERM) {
		err = cmp.Or(unlock(f, id), destroy())
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// unlock clears the flags (FS_IMMUTABLE_FL, FS_APPEND_FL) that keep a subvolume from being destroyed: those of its
// root, and of the directory that it lies in.
func unlock(f *os.File, id uint64) error {
	var above, dir uint64
	err := search(f, allItems(rootTree, id, typeRootBackref), func(offset uint64, data []byte) {
		above, dir = offset, binary.LittleEndian.Uint64(data) // struct btrfs_root_ref
	})
	return errors.Join(err, within(f, id, firstFree, clearFlags), within(f, above, dir, clearFlags))
}

func clearFlags(dir *os.File) error {
	_, err := openat.Unlock(dir)
	return err
}

// MakeWritable clears the read-only flag of a subvolume. It does nothing to a directory that is none.
func MakeWritable(subvolume *os.File) error {
	if is, err := IsSubvolume(subvolume); err != nil || !is {
		return err
	}
	var flags uint64
	err := do(subvolume, "read subvolume's flags", ioctl.R, 25, &flags)
	if err != nil || flags&subvolumeReadOnly == 0 {
		return err
	}
	flags &^= subvolumeReadOnly
	return do(subvolume, "set subvolume's flags", ioctl.W, 26, &flags)
}

// ready are subvolumes from which another one can be removed.
type ready map[uint64]bool

func (r ready) make(f *os.File, id uint64) error {
	if r[id] {
		return nil
	}
	r[id] = true
	return errors.Join(release(f, id), makeWritable(f, id))
}

// release takes a subvolume out of all qgroups and clears its own limit.
func release(f *os.File, id uint64) error {
	q := NewQgroupID(0, id)
	err := joinQgroup(f, q, 0)
	if err == nil {
		err = SetQgroupLimit(f, q, 0)
	}
	if errors.Is(err, fs.ErrNotExist) { // quota is off, or the qgroup was removed
		return nil
	}
	return err
}

// makeWritable clears the read-only flag of a subvolume, since in a read-only one no other can be destroyed.
func makeWritable(f *os.File, id uint64) error { return within(f, id, firstFree, MakeWritable) }

// within opens a directory of a subvolume by its inode number, and does something with it. That is by its file handle:
// nobody knows a path to it. It does nothing where the directory is gone.
func within(f *os.File, id, inode uint64, do func(*os.File) error) error {
	handle := binary.NativeEndian.AppendUint64(nil, inode) // struct btrfs_fid of fs/btrfs/export.h
	handle = binary.NativeEndian.AppendUint64(handle, id)
	handle = binary.NativeEndian.AppendUint32(handle, 0) // any generation
	fd, err := unix.OpenByHandleAt(int(f.Fd()), unix.NewFileHandle(handleType, handle), unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ESTALE) { // destroyed meanwhile
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open subvolume", Path: f.Name(), Err: err}
	}
	dir := os.NewFile(uintptr(fd), fmt.Sprintf("%s, subvolume %d", f.Name(), id))
	defer dir.Close()
	return do(dir)
}

// idOf is the ID of the subvolume that has this name in parent; a directory that is none is EINVAL, a link ELOOP.
func idOf(parent *os.File, name string) (uint64, error) {
	f, err := openat.Open(parent, name, unix.O_DIRECTORY, openat.Beneath)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	id, err := SubvolumeID(f)
	if err == nil && id == 0 {
		err = openat.Failed("destroy subvolume", f.Name(), unix.EINVAL)
	}
	return id, err
}
