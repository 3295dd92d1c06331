package copytree_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

const (
	immutable  = 0x10
	appendOnly = 0x20
	nodump     = 0x40
	noatime    = 0x80
	dirsync    = 0x10000
	whitelist  = 0x8 | immutable | appendOnly | nodump | noatime | dirsync
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wants(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("error %v, want %v", err, want)
	}
}

// disk is a new filesystem, kept in memory, with two empty directories: source and target.
func disk(tb testing.TB, kind string) string {
	tb.Helper()
	memory, root := tb.TempDir(), tb.TempDir()
	mounttest.Tmpfs(tb, memory, "")
	mounttest.Image(tb, memory+"/image", kind, 1<<30)
	mounttest.Loop(tb, memory+"/image", root)
	must(tb, errors.Join(os.Mkdir(root+"/source", 0o700), os.Mkdir(root+"/target", 0o700)))
	return root
}

func open(tb testing.TB, path string) *os.File {
	tb.Helper()
	f, err := os.Open(path)
	must(tb, err)
	tb.Cleanup(func() { f.Close() })
	return f
}

func chattr(tb testing.TB, path string, flags int) {
	tb.Helper()
	f, err := os.Open(path)
	must(tb, err)
	defer f.Close()
	now, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	must(tb, err)
	must(tb, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, now|flags))
}

func setxattr(tb testing.TB, path, name, value string) {
	tb.Helper()
	must(tb, unix.Lsetxattr(path, name, []byte(value), 0))
}

// acl is a POSIX ACL in the form of linux/posix_acl_xattr.h: for the owner, one user, the group, and others.
func acl(user uint32) string {
	out := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, ^uint32(0)}, {2, 6, user}, {4, 5, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 1, ^uint32(0)}} {
		out = binary.LittleEndian.AppendUint16(out, e.tag)
		out = binary.LittleEndian.AppendUint16(out, e.perm)
		out = binary.LittleEndian.AppendUint32(out, e.id)
	}
	return string(out)
}

// capability is CAP_NET_BIND_SERVICE, permitted and effective (struct vfs_cap_data of linux/capability.h).
func capability() string {
	return string([]byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
}

func pattern(n int) string {
	out := make([]byte, 0, n+8)
	for i := 0; len(out) < n; i++ {
		out = binary.LittleEndian.AppendUint64(out, uint64(i)*0x9e3779b97f4a7c15)
	}
	return string(out[:n])
}

func write(tb testing.TB, path, data string) {
	tb.Helper()
	must(tb, os.WriteFile(path, []byte(data), 0o600))
}

func writeAt(tb testing.TB, path string, size int64, at map[int64]string) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	must(tb, err)
	for offset, data := range at {
		_, err = f.WriteAt([]byte(data), offset)
		must(tb, err)
	}
	must(tb, errors.Join(f.Truncate(size), f.Sync(), f.Close()))
}

// everything makes a tree with one of everything in a directory.
func everything(tb testing.TB, root string) {
	tb.Helper()
	const huge = int64(1) << 40
	link, dirFlags := 3000, noatime|dirsync
	if isXFS(tb, root) {
		link, dirFlags = 1000, noatime
	}
	at := func(name string) string { return filepath.Join(root, name) }
	for _, name := range []string{"dir/sub", "empty", "acl", "setgid", "closed", "many", "fixed", "log"} {
		must(tb, os.MkdirAll(at(name), 0o755))
	}
	write(tb, at("empty file"), "")
	write(tb, at("small"), "x")
	write(tb, at("dir/large"), pattern(1<<20+123))
	write(tb, at("dir/sub/zero mode"), "secret")
	writeAt(tb, at("sparse"), 10<<20, map[int64]string{
		0: pattern(5000), 1 << 20: pattern(100), 9<<20 + 4096: pattern(70000),
	})
	writeAt(tb, at("all hole"), 5<<20, nil)
	writeAt(tb, at("huge"), huge, map[int64]string{huge / 2 &^ 65535: "in the middle", huge - 7: "the end"})
	write(tb, at(strings.Repeat("\xff\n\"", 85)), "255 bytes")
	write(tb, at("..."), "dots")
	write(tb, at("bin"), "#!")
	write(tb, at("capable"), "elf")
	write(tb, at("fixed/in it"), "within")
	for i := range 300 {
		write(tb, at("many/"+strconv.Itoa(i)), pattern(i*7))
	}
	must(tb, errors.Join(
		os.Symlink("small", at("link")), os.Symlink("/etc/passwd", at("absolute")),
		os.Symlink("no/where", at("dangling")),
		os.Symlink(strings.Repeat("l", link), at("long link")),
		unix.Mkfifo(at("fifo"), 0o620), unix.Mknod(at("socket"), unix.S_IFSOCK|0o711, 0),
		unix.Mknod(at("char"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mknod(at("block"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 70000))),
		os.Link(at("dir/large"), at("empty/second")), os.Link(at("dir/large"), at("third")),
		os.Link(at("fifo"), at("dir/fifo too")), os.Link(at("link"), at("dir/link too")),
		os.Lchown(at("link"), 5, 6), os.Chown(at("bin"), 7, 8), os.Chmod(at("bin"), 0o755|os.ModeSetuid|os.ModeSetgid),
		os.Chown(at("capable"), 9, 10), os.Chown(at("setgid"), 1000, 2000),
		os.Chmod(at("setgid"), 0o770|os.ModeSetgid|os.ModeSticky), os.Chmod(at("dir/sub/zero mode"), 0),
		os.Chown(at("fifo"), 1<<31, 77),
	))
	setxattr(tb, at("small"), "user.empty", "")
	setxattr(tb, at("small"), "user.\xff", pattern(1000))
	setxattr(tb, at("small"), "trusted.a", "b")
	setxattr(tb, at("link"), "trusted.link", "of a link")
	setxattr(tb, at("char"), "trusted.device", "of a device")
	setxattr(tb, at("small"), "system.posix_acl_access", acl(12))
	setxattr(tb, at("acl"), "system.posix_acl_default", acl(13))
	setxattr(tb, at("acl"), "system.posix_acl_access", acl(14))
	setxattr(tb, at("capable"), "security.capability", capability())
	write(tb, at("acl/inherits"), "")
	write(tb, at("fixed/linked"), "immutable and linked")
	must(tb, os.Link(at("fixed/linked"), at("dir/linked")))
	write(tb, at("log/log"), "appended")
	setxattr(tb, root, "user.root", "of the root")
	must(tb, errors.Join(os.Chown(root, 33, 34), os.Chmod(root, 0o751|os.ModeSticky)))
	deepen(tb, root, 20)
	old := time.Unix(-12345, 678901234)
	must(tb, filepath.WalkDir(at("dir"), func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, lutimes(path, old, old.Add(time.Hour)))
	}))
	must(tb, errors.Join(os.Chmod(at("closed"), 0), lutimes(at("link"), old, old), lutimes(root, old, old.Add(1))))
	chattr(tb, at("dir/linked"), immutable)
	chattr(tb, at("fixed/in it"), immutable|nodump)
	chattr(tb, at("fixed"), immutable)
	chattr(tb, at("log/log"), appendOnly)
	chattr(tb, at("log"), appendOnly|dirFlags)
	chattr(tb, root, immutable|nodump)
}

// isXFS reports whether a directory is on XFS, which has shorter links, and fewer flags, than the others.
func isXFS(tb testing.TB, path string) bool {
	tb.Helper()
	var st unix.Statfs_t
	must(tb, unix.Statfs(path, &st))
	return st.Type == unix.XFS_SUPER_MAGIC
}

func lutimes(path string, atime, mtime time.Time) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{
		{Sec: atime.Unix(), Nsec: int64(atime.Nanosecond())}, {Sec: mtime.Unix(), Nsec: int64(mtime.Nanosecond())},
	}, unix.AT_SYMLINK_NOFOLLOW)
}

// deepen makes directories in each other with names so long that no path leads to the last one.
func deepen(tb testing.TB, root string, levels int) {
	tb.Helper()
	dir, err := os.Open(root)
	must(tb, err)
	for i := range levels {
		name := "deep" + strconv.Itoa(i)
		must(tb, unix.Mkdirat(int(dir.Fd()), name, 0o711))
		next, err := openat.Open(dir, name, unix.O_DIRECTORY, openat.SameMount)
		must(tb, errors.Join(err, dir.Close()))
		dir = next
	}
	fd, err := unix.Openat(int(dir.Fd()), "bottom", unix.O_CREAT|unix.O_WRONLY, 0o600)
	must(tb, err)
	must(tb, errors.Join(unix.Close(fd), dir.Close()))
}

// describe is what is below a directory, by path, and what everything there is. It does not change atimes.
func describe(tb testing.TB, path string) map[string]string {
	tb.Helper()
	dir, err := os.Open(path)
	must(tb, err)
	defer dir.Close()
	d := description{tb: tb, is: map[string]string{}, first: map[uint64]string{}}
	d.visit(dir, ".", "")
	return d.is
}

type description struct {
	tb    testing.TB
	is    map[string]string
	first map[uint64]string // the first path of an inode
}

func (d *description) visit(dir *os.File, name, path string) {
	found, err := openat.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, openat.Beneath)
	must(d.tb, err)
	defer found.Close()
	var st unix.Stat_t
	must(d.tb, unix.Fstat(int(found.Fd()), &st))
	says := fmt.Sprintf("mode %o owner %d:%d mtime %d", st.Mode, st.Uid, st.Gid, st.Mtim.Nano()) + xattrs(d.tb, found)
	if st.Mode&unix.S_IFMT != unix.S_IFLNK { // it changes when somebody reads where a link points, as this does
		says += fmt.Sprintf(" atime %d", st.Atim.Nano())
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		f, err := openat.Reopen(found, unix.O_RDONLY|unix.O_NOATIME)
		must(d.tb, err)
		if path == "" { // a copy's root has not all flags of its source's: TestRootIsNotFixed
			says += flags(d.tb, f, whitelist&^(immutable|appendOnly))
		} else {
			says += flags(d.tb, f, whitelist)
		}
		names, err := f.Readdirnames(-1)
		must(d.tb, err)
		slices.Sort(names)
		for _, name := range names {
			d.visit(f, name, path+"/"+name)
		}
		f.Close()
		d.is[path] = says
		return
	case unix.S_IFREG:
		f, err := openat.Reopen(found, unix.O_RDONLY|unix.O_NOATIME)
		must(d.tb, err)
		says += flags(d.tb, f, whitelist) + fmt.Sprintf(" size %d", st.Size) + content(d.tb, f)
		f.Close()
	case unix.S_IFLNK:
		to := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(found.Fd()), "", to)
		must(d.tb, err)
		says += " to " + string(to[:n])
	default:
		says += fmt.Sprintf(" device %#x", st.Rdev)
	}
	if _, linked := d.first[st.Ino]; !linked {
		d.first[st.Ino] = path
	}
	d.is[path] = says + fmt.Sprintf(" %d names, the first is %q", st.Nlink, d.first[st.Ino])
}

func flags(tb testing.TB, f *os.File, of int) string {
	got, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	must(tb, err)
	return fmt.Sprintf(" flags %#x", got&of)
}

func xattrs(tb testing.TB, f *os.File) string {
	n, err := unix.Listxattr(openat.Self(f), nil)
	must(tb, err)
	if n == 0 {
		return ""
	}
	list, value := make([]byte, 64<<10), make([]byte, 64<<10)
	n, err = unix.Listxattr(openat.Self(f), list)
	must(tb, err)
	var out []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name == "" || name == "security.selinux" || strings.HasPrefix(name, "btrfs.") {
			continue
		}
		n, err := unix.Getxattr(openat.Self(f), name, value)
		must(tb, err)
		out = append(out, fmt.Sprintf(" %q=%x", name, value[:n]))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// content is what data a file has, and where, in blocks of 4 KiB.
func content(tb testing.TB, f *os.File) string {
	var offset int64
	out := ""
	for {
		start, err := unix.Seek(int(f.Fd()), offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return out
		}
		must(tb, err)
		offset, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		must(tb, err)
		hash := sha256.New()
		_, err = io.Copy(hash, io.NewSectionReader(f, start, offset-start))
		must(tb, err)
		out += fmt.Sprintf(" data %d-%d %.8x", start, offset, hash.Sum(nil))
	}
}

// differ shows how two descriptions differ, briefly.
func differ(tb testing.TB, got, want map[string]string) {
	tb.Helper()
	shown := 0
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] && shown < 10 {
			shown++
			tb.Errorf("%.200q is\n %.600q, want\n %.600q", path, got[path], want[path])
		}
	}
	for path := range got {
		if _, is := want[path]; !is && shown < 10 {
			shown++
			tb.Errorf("%.200q was added", path)
		}
	}
}
