package projectquota

import (
	"testing"
	"unsafe"
)

// TestLayout compares with what the C compiler makes of the kernel's headers (linux/fs.h, linux/quota.h,
// linux/dqblk_xfs.h of linux-libc-dev 6.1).
func TestLayout(t *testing.T) {
	for _, test := range []struct {
		name      string
		got, want uintptr
	}{
		{"fsxattr", unsafe.Sizeof(xattr{}), 28},
		{"fsxattr.fsx_projid", unsafe.Offsetof(xattr{}.project), 12},
		{"if_dqblk", unsafe.Sizeof(block{}), 72},
		{"if_dqblk.dqb_curspace", unsafe.Offsetof(block{}.bytes), 16},
		{"if_dqblk.dqb_ihardlimit", unsafe.Offsetof(block{}.hardInodes), 24},
		{"if_dqblk.dqb_valid", unsafe.Offsetof(block{}.valid), 64},
		{"if_nextdqblk", unsafe.Sizeof(block{}), 72},
		{"if_nextdqblk.dqb_id", unsafe.Offsetof(block{}.id), 68},
		{"fs_quota_statv", unsafe.Sizeof(quotaState{}), 160},
		{"fs_quota_statv.qs_flags", unsafe.Offsetof(quotaState{}.flags), 2},
		{"QCMD(Q_GETQUOTA, PRJQUOTA)", command(getQuota), 0x80000702},
		{"QCMD(Q_XGETQSTATV, PRJQUOTA)", command(xGetState), 0x580802},
		{"QCMD(Q_XQUOTAON, PRJQUOTA)", command(xQuotaOn), 0x580102},
	} {
		if test.got != test.want {
			t.Errorf("%s: %#x, want %#x", test.name, test.got, test.want)
		}
	}
}
