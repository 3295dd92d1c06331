package btrfs

import (
	"math"
	"os"
	"unsafe"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
)

// From include/uapi/linux/btrfs.h, btrfs_tree.h.
const (
	magic = 0x94 // BTRFS_IOCTL_MAGIC

	rootTree  = 1 // BTRFS_ROOT_TREE_OBJECTID
	quotaTree = 8 // BTRFS_QUOTA_TREE_OBJECTID

	topLevel  = 5   // BTRFS_FS_TREE_OBJECTID: the id of the subvolume that all others are in
	firstFree = 256 // BTRFS_FIRST_FREE_OBJECTID: the inode number of a subvolume's root, and the first one's id

	typeOrphan         = 48  // BTRFS_ORPHAN_ITEM_KEY
	typeRootBackref    = 144 // BTRFS_ROOT_BACKREF_KEY: (child, ROOT_BACKREF, parent)
	typeRootRef        = 156 // BTRFS_ROOT_REF_KEY: (parent, ROOT_REF, child)
	typeQgroupStatus   = 240 // BTRFS_QGROUP_STATUS_KEY
	typeQgroupInfo     = 242 // BTRFS_QGROUP_INFO_KEY
	typeQgroupLimit    = 244 // BTRFS_QGROUP_LIMIT_KEY
	typeQgroupRelation = 246 // BTRFS_QGROUP_RELATION_KEY: (one, QGROUP_RELATION, other), both ways round

	// orphans is BTRFS_ORPHAN_OBJECTID, -5: the object that has an item for each removed subvolume.
	orphans = math.MaxUint64 - 4

	statusOn     = 1 << 0 // BTRFS_QGROUP_STATUS_FLAG_ON
	statusSimple = 1 << 3 // BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE (Linux 6.7)

	limitMaxReferenced = 1 << 0 // BTRFS_QGROUP_LIMIT_MAX_RFER

	quotaEnableSimple = 4 // BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA (Linux 6.7)

	subvolumeReadOnly      = 1 << 1 // BTRFS_SUBVOL_RDONLY
	subvolumeQgroupInherit = 1 << 2 // BTRFS_SUBVOL_QGROUP_INHERIT
	subvolumeSpecByID      = 1 << 4 // BTRFS_SUBVOL_SPEC_BY_ID (Linux 5.7)

	handleType = 0x4d // FILEID_BTRFS_WITHOUT_PARENT, of a file handle

	levelShift = 48 // BTRFS_QGROUP_LEVEL_SHIFT
)

// volArgsV2 is struct btrfs_ioctl_vol_args_v2.
type volArgsV2 struct {
	fd      int64  // of a snapshot's source
	_       uint64 // transid
	flags   uint64
	size    uint64
	inherit *qgroupInherit
	_       [2]uint64
	name    [4040]byte // BTRFS_SUBVOL_NAME_MAX + 1; with SPEC_BY_ID its first 8 bytes are the subvolume's id
}

// qgroupInherit is struct btrfs_qgroup_inherit with at most one qgroup in its flexible array.
type qgroupInherit struct {
	_       uint64 // flags
	qgroups uint64
	_       [2]uint64   // num_ref_copies, num_excl_copies
	limit   qgroupLimit // with BTRFS_QGROUP_INHERIT_SET_LIMITS among the flags
	qgroup  [1]QgroupID
}

// qgroupLimit is struct btrfs_qgroup_limit.
type qgroupLimit struct {
	flags         uint64
	maxReferenced uint64
	_             [3]uint64 // max_excl, rsv_rfer, rsv_excl
}

// qgroupLimitArgs is struct btrfs_ioctl_qgroup_limit_args.
type qgroupLimitArgs struct {
	qgroup QgroupID
	limit  qgroupLimit
}

// qgroupCreateArgs is struct btrfs_ioctl_qgroup_create_args.
type qgroupCreateArgs struct {
	create uint64
	qgroup QgroupID
}

// qgroupAssignArgs is struct btrfs_ioctl_qgroup_assign_args.
type qgroupAssignArgs struct {
	assign uint64
	member QgroupID
	group  QgroupID
}

// quotaCtlArgs is struct btrfs_ioctl_quota_ctl_args.
type quotaCtlArgs struct {
	command uint64
	_       uint64 // status
}

// inoLookupArgs is struct btrfs_ioctl_ino_lookup_args.
type inoLookupArgs struct {
	tree   uint64
	object uint64
	_      [4080]byte // name, BTRFS_INO_LOOKUP_PATH_MAX
}

// searchKey is struct btrfs_ioctl_search_key.
type searchKey struct {
	tree                 uint64
	minObject, maxObject uint64
	minOffset, maxOffset uint64
	_                    uint64 // min_transid
	maxTransid           uint64
	minType, maxType     uint32
	items                uint32
	_                    uint32
	_                    [4]uint64
}

// searchArgs is struct btrfs_ioctl_search_args.
type searchArgs struct {
	key searchKey
	buf [4096 - unsafe.Sizeof(searchKey{})]byte
}

// searchArgsV2 is struct btrfs_ioctl_search_args_v2 with its flexible array.
type searchArgsV2 struct {
	key  searchKey
	size uint64
	buf  [64 << 10]byte
}

// searchHeaderSize is struct btrfs_ioctl_search_header's: transid, objectid, offset (64 bits each), type, len (32).
const searchHeaderSize = 32

// do makes a request of btrfs; direction is that of the data.
func do[T any](
	f *os.File, op string, direction func(kind, number byte, size uintptr) ioctl.Request, number byte, argument *T,
) error {
	return ioctl.Do(f, op, direction(magic, number, unsafe.Sizeof(*argument)), argument)
}
