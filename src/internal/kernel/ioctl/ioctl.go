// Package ioctl is ioctl(2) with a structure as its argument.
package ioctl

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// Request encodes a request's number as include/uapi/asm-generic/ioctl.h does: direction, size of the argument, type
// and number. (The architectures that this driver is built for, amd64 and arm64, use that header as it is.)
type Request uintptr

const (
	write = 1 // _IOC_WRITE: user space writes, the kernel reads
	read  = 2 // _IOC_READ
)

// R is _IOR; size is that of the argument in bytes.
func R(kind, number byte, size uintptr) Request { return request(read, kind, number, size) }

// W is _IOW.
func W(kind, number byte, size uintptr) Request { return request(write, kind, number, size) }

// RW is _IOWR.
func RW(kind, number byte, size uintptr) Request { return request(read|write, kind, number, size) }

func request(direction uintptr, kind, number byte, size uintptr) Request {
	return Request(direction<<30 | size<<16 | uintptr(kind)<<8 | uintptr(number))
}

// Do makes the request on an open file, which must not be an O_PATH one (EBADF). T is the kernel's structure, laid out
// as the kernel's. The error is a *fs.PathError that names op.
func Do[T any](f *os.File, op string, r Request, argument *T) error {
	return Call(f, op, func() unix.Errno {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(r),
			uintptr(unsafe.Pointer(argument))) //nolint:gosec // G103: ioctl(2) takes a pointer
		return errno
	})
}

// Call makes a system call on an open file, with the errors of Do.
func Call(f *os.File, op string, call func() unix.Errno) error {
	defer runtime.KeepAlive(f)
	return openat.Failed(op, f.Name(), openat.Retry(func() error {
		if errno := call(); errno != 0 {
			return errno
		}
		return nil
	}))
}
