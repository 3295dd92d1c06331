// Package mounts reads mount tables (proc_pid_mountinfo(5)): which filesystem is at a path, without touching it.
package mounts

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Self is the table of the process itself.
const Self = "/proc/self/mountinfo"

// Table is a mount table.
type Table []*mountinfo.Info

// Read reads a table.
func Read(path string) (Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	table, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table %s: %w", path, err)
	}
	return table, nil
}

// Of gives the mount that an open directory is in; nil where this is not the table of the process, or the mount is new.
func (t Table) Of(dir *os.File) (*mountinfo.Info, error) {
	id, err := ID(dir)
	if err != nil {
		return nil, err
	}
	for _, m := range t {
		if uint64(m.ID) == id {
			return m, nil
		}
	}
	return nil, nil
}

// ID is that of the mount which an open directory is in.
func ID(dir *os.File) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID == 0 {
		err = fmt.Errorf("%w: Linux 5.8 or newer is needed", unix.ENOTSUP)
	}
	if err != nil {
		return 0, &fs.PathError{Op: "statx", Path: dir.Name(), Err: err}
	}
	return st.Mnt_id, nil
}

// At gives the mount that the kernel comes to on its way along a path, links aside; nil where the table has no root. On
// a mount it enters the first that is mounted on it along the path, until there is none.
func (t Table) At(path string) *mountinfo.Info {
	at := t.root()
	for next := at; next != nil; {
		at, next = next, nil
		for _, m := range t {
			if m.Parent == at.ID && m != at && Below(path, m.Mountpoint) &&
				(next == nil || len(m.Mountpoint) < len(next.Mountpoint)) {
				next = m
			}
		}
	}
	return at
}

// root is the mount without a parent in the table.
func (t Table) root() *mountinfo.Info {
	ids := map[int]bool{}
	for _, m := range t {
		ids[m.ID] = true
	}
	for _, m := range t {
		if m.Mountpoint == "/" && (m.Parent == m.ID || !ids[m.Parent]) {
			return m
		}
	}
	return nil
}

// Has reports whether a filesystem is mounted anywhere.
func (t Table) Has(filesystem *mountinfo.Info) bool {
	return slices.ContainsFunc(t, func(m *mountinfo.Info) bool { return Same(m, filesystem) })
}

// Same reports whether two mounts are of one filesystem: of btrfs too, whose subvolumes have a device number each
// in stat(2) but not here.
func Same(a, b *mountinfo.Info) bool { return a.Major == b.Major && a.Minor == b.Minor }

// Below reports whether a clean path is a directory or in it.
func Below(path, directory string) bool {
	return strings.HasPrefix(strings.TrimSuffix(path, "/")+"/", strings.TrimSuffix(directory, "/")+"/")
}
