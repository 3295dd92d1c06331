// Package ioctl is ioctl(2) with a structure as its argument.
package ioctl

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
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
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(r),
			uintptr(unsafe.Pointer(argument))) //nolint:gosec // G103: ioctl(2) takes a pointer
		runtime.KeepAlive(f)
		switch {
		case errno == 0:
			return nil
		case !errors.Is(errno, unix.EINTR):
			return &fs.PathError{Op: op, Path: f.Name(), Err: errno}
		}
	}
}
