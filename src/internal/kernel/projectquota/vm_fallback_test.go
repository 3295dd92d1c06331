//go:build vm

package projectquota

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutQuotactlFD does something where the kernel answers quotactl_fd(2) as one that does not know it (before 5.14).
func withoutQuotactlFD(do func() error) error {
	return thread(func() error {
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // nr of struct seccomp_data in linux/seccomp.h
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_QUOTACTL_FD, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}, do)
}

// TestVMWithoutQuotactlFD: every command goes by quotactl(2) then, and by nobody's asking.
func TestVMWithoutQuotactlFD(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		volume(t, top, 7, Limit{Bytes: 8 * mib})
		must(t, withoutQuotactlFD(func() error {
			if hasQuotactlFD() {
				return errors.New("quotactl_fd is still there")
			}
			if s, err := Probe(top); err != nil || !s.Enforcing {
				return fmt.Errorf("probe: %+v, %w", s, err)
			}
			if err := SetLimit(top, 7, Limit{Bytes: 16 * mib}); err != nil {
				return err
			}
			if all, err := List(top, 7, 7); err != nil || len(all) != 1 || all[0].Limit.Bytes != 16*mib {
				return fmt.Errorf("list: %+v, %w", all, err)
			}
			return nil
		}))
		if q, err := Get(top, 7); err != nil || q.Limit.Bytes != 16*mib || q.Usage.Inodes != 1 {
			t.Errorf("%+v, %v", q, err)
		}
	})
}
