// Package btrfs asks the kernel by hand, without a driver: what it takes is the kernel's own cost. Structures and
// numbers are those of include/uapi/linux/btrfs.h and btrfs_tree.h.
package btrfs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests, as _IOC of include/uapi/asm-generic/ioctl.h makes them.
const (
	w, r, rw = 1 << 30, 2 << 30, 3 << 30
	magic    = 0x94 << 8 // BTRFS_IOCTL_MAGIC

	treeSearch   = rw | 4096<<16 | magic | 17
	createSubvol = w | 4096<<16 | magic | 24 // BTRFS_IOC_SUBVOL_CREATE_V2
	fsInfo       = r | 1024<<16 | magic | 31
	quotaCtl     = rw | 16<<16 | magic | 40
	createQgroup = w | 16<<16 | magic | 42
	limitQgroup  = r | 48<<16 | magic | 43
)

// volArgs is struct btrfs_ioctl_vol_args_v2.
type volArgs struct {
	_       [2]uint64 // fd, transid
	flags   uint64
	size    uint64
	inherit *inherit
	_       [2]uint64
	name    [4040]byte
}

// inherit is struct btrfs_qgroup_inherit with one qgroup.
type inherit struct {
	_       uint64 // flags
	qgroups uint64
	_       [7]uint64 // two numbers of copies, a limit of five numbers
	qgroup  uint64
}

// searchArgs is struct btrfs_ioctl_search_args.
type searchArgs struct {
	tree                    uint64
	_, _                    uint64 // objects from and to
	minOffset, maxOffset    uint64
	_, maxTransaction       uint64
	minType, maxType, items uint32
	_                       uint32
	_                       [4]uint64
	buf                     [499]uint64
}

// do makes a request.
func do[T any](dir *os.File, op string, request uintptr, args *T) error {
	//nolint:gosec // ioctl(2) takes a pointer
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(args)))
	runtime.KeepAlive(dir)
	if errno != 0 {
		return fmt.Errorf("%s on %s: %w", op, dir.Name(), errno)
	}
	return nil
}

// EnableSimpleQuota switches on what limits volumes strictly.
func EnableSimpleQuota(dir *os.File) error {
	const simple = 4 // BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
	return do(dir, "switch on simple quota", quotaCtl, &[2]uint64{simple})
}

func group(id uint64) uint64 { return 1<<48 | id }

// Subvolume makes a subvolume for all, which counts to the group 1/ID, made with a limit in
// bytes. Nothing of it is durable.
func Subvolume(dir *os.File, name string, id uint64, limit uint64) error {
	const maxReferenced, inheritFlag = 1, 1 << 2 // BTRFS_QGROUP_LIMIT_MAX_RFER, BTRFS_SUBVOL_QGROUP_INHERIT
	if err := do(dir, "make a qgroup", createQgroup, &[2]uint64{1, group(id)}); err != nil {
		return err
	}
	if err := do(dir, "limit a qgroup", limitQgroup, &[6]uint64{group(id), maxReferenced, limit}); err != nil {
		return err
	}
	args := &volArgs{flags: inheritFlag, inherit: &inherit{qgroups: 1, qgroup: group(id)}}
	args.size = uint64(unsafe.Sizeof(*args.inherit))
	copy(args.name[:len(args.name)-1], name)
	if err := do(dir, "make subvolume "+name, createSubvol, args); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(dir.Name(), name), 0o777)
}

// Used is how many bytes count to the group 1/ID: one search of the quota tree.
func Used(dir *os.File, id uint64) (uint64, error) {
	// BTRFS_QUOTA_TREE_OBJECTID, BTRFS_QGROUP_INFO_KEY, a search header in numbers of 64 bits
	const quotaTree, info, header = 8, 242, 4
	args := &searchArgs{
		tree: quotaTree, minOffset: group(id), maxOffset: group(id), maxTransaction: math.MaxUint64,
		minType: info, maxType: info, items: 1,
	}
	if err := do(dir, "read a qgroup", treeSearch, args); err != nil {
		return 0, err
	}
	if args.items != 1 {
		return 0, fmt.Errorf("qgroup 1/%d: %w", id, os.ErrNotExist)
	}
	return args.buf[header+1], nil // after the generation
}

// Commits is how many times the filesystem of a directory has committed a transaction
// (Documentation/ABI, /sys/fs/btrfs).
func Commits(dir *os.File) (int, error) {
	args := &struct { // struct btrfs_ioctl_fs_info_args
		_    [2]uint64 // max_id, num_devices
		fsid [16]byte
		_    [992]byte
	}{}
	if err := do(dir, "read the filesystem's id", fsInfo, args); err != nil {
		return 0, err
	}
	b := args.fsid
	name := fmt.Sprintf("/sys/fs/btrfs/%x-%x-%x-%x-%x/commit_stats", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("count commits (Linux 6.1 or newer): %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "commits "); ok {
			return strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return 0, fmt.Errorf("%s says nothing of commits", name)
}
