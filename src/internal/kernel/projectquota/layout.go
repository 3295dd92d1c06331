package projectquota

const (
	// From include/uapi/linux/fs.h: FS_IOC_FSGETXATTR is _IOR('X', 31), FS_IOC_FSSETXATTR _IOW('X', 32).
	fsxMagic           = 'X'
	flagProjectInherit = 0x200 // FS_XFLAG_PROJINHERIT

	// From include/uapi/linux/quota.h.
	projectType  = 2           // PRJQUOTA
	quotaOn      = 0x800002    // Q_QUOTAON
	getQuota     = 0x800007    // Q_GETQUOTA
	setQuota     = 0x800008    // Q_SETQUOTA
	getNextQuota = 0x800009    // Q_GETNEXTQUOTA
	formatV1     = 4           // QFMT_VFS_V1
	limitsValid  = 1<<0 | 1<<2 // QIF_BLIMITS | QIF_ILIMITS

	// From include/uapi/linux/dqblk_xfs.h; the generic quota code answers them for ext4 too.
	xQuotaOn          = 'X'<<8 + 1 // Q_XQUOTAON
	xGetState         = 'X'<<8 + 8 // Q_XGETQSTATV
	stateVersion      = 1          // FS_QSTATV_VERSION1
	projectAccounting = 1 << 4     // FS_QUOTA_PDQ_ACCT
	projectEnforcing  = 1 << 5     // FS_QUOTA_PDQ_ENFD
)

// xattr is struct fsxattr of include/uapi/linux/fs.h.
type xattr struct {
	flags   uint32
	_       [2]uint32 // fsx_extsize, fsx_nextents
	project uint32
	_       uint32 // fsx_cowextsize
	_       [8]byte
}

// block is struct if_nextdqblk of include/uapi/linux/quota.h; struct if_dqblk has padding in place of the ID.
type block struct {
	hardBytes  uint64 // in Units
	_          uint64 // soft limit
	bytes      uint64 // in bytes
	hardInodes uint64
	_          uint64 // soft limit
	inodes     uint64
	_          [2]uint64 // times of soft limits
	valid      uint32
	id         uint32
}

func (b block) quota(id uint32) Quota {
	return Quota{
		ID:    id,
		Limit: Limit{Bytes: b.hardBytes * Unit, Inodes: b.hardInodes},
		Usage: Usage{Bytes: b.bytes, Inodes: b.inodes},
	}
}

// quotaState is struct fs_quota_statv of include/uapi/linux/dqblk_xfs.h.
type quotaState struct {
	version int8
	_       uint8
	flags   uint16
	_       uint32       // qs_incoredqs
	_       [3][3]uint64 // struct fs_qfilestatv of users, groups and projects
	_       [3]int32     // time limits
	_       [4]uint16    // warning limits, padding
	_       uint32
	_       [7]uint64
}

// command is QCMD for project quota.
func command(c uintptr) uintptr { return c<<8 | projectType }
