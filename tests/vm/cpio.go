package vm

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// archive writes files into a cpio archive of the form "newc", which is what the kernel takes for its first root
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	out    io.Writer
	inode  int
	folder []string // those written
}

// add writes a file with its directories; content has size bytes.
func (a *archive) add(name string, mode fs.FileMode, size int64, content io.Reader) error {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for i, r := range name {
		if r != '/' || slices.Contains(a.folder, name[:i]) {
			continue
		}
		a.folder = append(a.folder, name[:i])
		if err := a.entry(name[:i], 0o040755, 0, nil); err != nil {
			return err
		}
	}
	return a.entry(name, 0o100000|uint32(mode.Perm()), size, content)
}

// addFile is add of a file of the host.
func (a *archive) addFile(name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.add(name, info.Mode(), info.Size(), f)
}

// close ends the archive.
func (a *archive) close() error { return a.entry("TRAILER!!!", 0, 0, nil) }

func (a *archive) entry(name string, mode uint32, size int64, content io.Reader) error {
	const header = 110
	a.inode++
	// Magic, inode, mode, uid, gid, links, time, size, device and special device (major and minor), length of the name,
	// checksum.
	_, err := fmt.Fprintf(a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00%s",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name, padding(header+int64(len(name))+1))
	if err != nil || size == 0 {
		return err
	}
	if n, err := io.Copy(a.out, content); err != nil || n != size {
		return fmt.Errorf("%s: %d of %d bytes: %w", name, n, size, err)
	}
	_, err = io.WriteString(a.out, padding(size))
	return err
}

// padding fills up to a multiple of four.
func padding(size int64) string { return "\x00\x00\x00"[:(4-size%4)%4] }
