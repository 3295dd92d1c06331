package beneath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// WriteFile makes a new file with exactly this mode, writes and fsyncs it; on error nothing of the name is left.
// The name is durable after Sync of its directory.
func (d *Dir) WriteFile(name string, data []byte, mode fs.FileMode) error {
	p, err := d.entry("create", name)
	if err != nil {
		return err
	}
	defer p.close()
	how := unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC,
		Mode:    0o600,
		Resolve: within,
	}
	var fd int
	err = retry(func() error {
		fd, err = unix.Openat2(p.fd, p.last, &how)
		return err
	})
	if err != nil {
		return d.fail("create", name, err)
	}
	op, err := fill(fd, data, mode)
	if err == nil {
		return nil
	}
	err = d.fail(op, name, err)
	if left := unix.Unlinkat(p.fd, p.last, 0); left != nil {
		return errors.Join(err, d.fail("remove", name, left))
	}
	return err
}

// fill writes, fsyncs and closes a new file; op is what went wrong.
func fill(fd int, data []byte, mode fs.FileMode) (op string, err error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close() // a second Close is harmless
	if _, err := f.Write(data); err != nil {
		return "write", errno(err)
	}
	if err := retry(func() error { return unix.Fchmod(fd, unixMode(mode)) }); err != nil {
		return "chmod", err
	}
	if err := f.Sync(); err != nil {
		return "sync", errno(err)
	}
	if err := f.Close(); err != nil {
		return "close", errno(err)
	}
	return "", nil
}

// ReadFile reads a regular file of at most 1 MiB.
func (d *Dir) ReadFile(name string) ([]byte, error) {
	// Without O_NONBLOCK a planted FIFO would hold the caller forever.
	fd, err := d.open("read", name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, d.fail("read", name, err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil, d.fail("read", name, unix.EISDIR)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, d.fail("read", name, fmt.Errorf("%w: not a regular file", unix.EINVAL))
	case st.Size > maxFile:
		return nil, d.fail("read", name, unix.EFBIG)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, d.fail("read", name, errno(err))
	}
	return data, nil
}

// errno strips the os package's own path, which is not the caller's.
func errno(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// unixMode turns the permission bits of an fs.FileMode into those of chmod(2).
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if mode&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

func info(st *unix.Stat_t) Info {
	return Info{
		Dev: st.Dev, Ino: st.Ino,
		Mode: fileMode(st.Mode),
		UID:  int(st.Uid), GID: int(st.Gid),
	}
}

// fileMode is the reverse of unixMode, with the file's type.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	if bits&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if bits&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if bits&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	switch bits & unix.S_IFMT {
	case unix.S_IFREG:
		return mode
	case unix.S_IFDIR:
		return mode | fs.ModeDir
	case unix.S_IFLNK:
		return mode | fs.ModeSymlink
	case unix.S_IFIFO:
		return mode | fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return mode | fs.ModeSocket
	case unix.S_IFCHR:
		return mode | fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return mode | fs.ModeDevice
	default:
		return mode | fs.ModeIrregular
	}
}
