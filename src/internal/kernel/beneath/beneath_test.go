package beneath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Package poolfs has the table of what every operation answers; here is what only a real filesystem can show.

func open1(tb testing.TB) (*Dir, string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test must run as root: it mounts, and changes owners and attributes")
	}
	path := tb.TempDir()
	d, err := Open(path)
	must(tb, err)
	tb.Cleanup(func() { must(tb, d.Close()) })
	return d, path
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wants(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("error %v, want %v", err, want)
	}
}

// mount mounts a small tmpfs for the length of the test.
func mount(tb testing.TB, path string) {
	tb.Helper()
	must(tb, unix.Mount("hpp-test", path, "tmpfs", 0, "size=1m"))
	tb.Cleanup(func() { must(tb, unix.Unmount(path, unix.MNT_DETACH)) })
}

// TestOtherFilesystems checks where a mount below the directory is refused, and where it is seen.
func TestOtherFilesystems(t *testing.T) {
	d, path := open1(t)
	must(t, d.Mkdir("dir", 0o755))
	must(t, d.Mkdir("dir/mnt", 0o755))
	mount(t, path+"/dir/mnt")
	must(t, os.WriteFile(path+"/dir/mnt/file", []byte("kept"), 0o600))

	_, err := d.Stat("dir/mnt/file")
	wants(t, err, syscall.EXDEV)
	_, err = d.ReadDir("dir/mnt")
	wants(t, err, syscall.EXDEV)
	_, _, err = d.Handle("dir/mnt")
	wants(t, err, syscall.EXDEV)
	wants(t, d.Sync("dir/mnt"), syscall.EXDEV)
	wants(t, d.Mkdir("dir/mnt/new", 0o755), syscall.EXDEV)
	wants(t, d.WriteFile("dir/mnt/new", nil, 0o600), syscall.EXDEV)
	wants(t, d.Rename("dir/mnt", "moved"), syscall.EBUSY)
	wants(t, d.Remove("dir/mnt"), syscall.EBUSY)

	var want syscall.Stat_t
	must(t, syscall.Stat(path+"/dir/mnt", &want))
	info, err := d.Stat("dir/mnt")
	if err != nil || info.Dev != want.Dev || info.Ino != want.Ino {
		t.Errorf("Stat of a mount point: %+v, %v; want what is mounted there, %d:%d", info, err, want.Dev, want.Ino)
	}
	must(t, d.Chmod("dir/mnt", 0o700))
	sub, err := d.Sub("dir/mnt")
	must(t, err)
	defer sub.Close()
	if is, err := sub.MountPoint(); err != nil || !is {
		t.Errorf("MountPoint of a mount point: %v, %v", is, err)
	}
	if is, err := d.MountPoint(); err != nil || is {
		t.Errorf("MountPoint of a directory: %v, %v", is, err)
	}
	data, err := sub.ReadFile("file")
	if err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	across, err := OpenAcross(path)
	must(t, err)
	defer across.Close()
	if _, err := across.Stat("dir/mnt/file"); err != nil {
		t.Errorf("OpenAcross: %v", err)
	}
}

// TestSpecialFiles checks that a planted FIFO or device neither holds nor misleads anybody.
func TestSpecialFiles(t *testing.T) {
	d, path := open1(t)
	must(t, unix.Mkfifo(path+"/fifo", 0o600))
	must(t, unix.Mknod(path+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	for name, kind := range map[string]fs.FileMode{"fifo": fs.ModeNamedPipe, "null": fs.ModeDevice | fs.ModeCharDevice} {
		_, err := d.ReadFile(name)
		wants(t, err, syscall.EINVAL)
		must(t, d.Chmod(name, 0o640))
		info, err := d.Stat(name)
		if err != nil || info.Mode != kind|0o640 {
			t.Errorf("%s: %v, %v", name, info.Mode, err)
		}
	}
}

// TestWriteFileWithoutRoom checks that a full disk leaves nothing of the name.
func TestWriteFileWithoutRoom(t *testing.T) {
	_, path := open1(t)
	mount(t, path)
	d, err := Open(path)
	must(t, err)
	defer d.Close()
	wants(t, d.WriteFile("file", make([]byte, 2<<20), 0o600), syscall.ENOSPC)
	if entries, err := d.ReadDir("."); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

// TestNamesInMessages checks that bytes which a pod chose cannot garble a log.
func TestNamesInMessages(t *testing.T) {
	d, path := open1(t)
	_, err := d.Stat("a\nb\xff")
	if want := `stat "` + path + `/a\nb\xff": no such file or directory`; err == nil || err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	err = d.Rename("plain", "new\x1b[2J")
	if want := "rename " + path + `/plain "` + path + `/new\x1b[2J": no such file or directory`; err == nil || err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestUmask checks that Mkdir and WriteFile do not depend on it.
func TestUmask(t *testing.T) {
	d, _ := open1(t)
	old := unix.Umask(0o777)
	defer unix.Umask(old)
	must(t, d.Mkdir("dir", 0o777))
	must(t, d.WriteFile("dir/file", nil, 0o666))
	for name, want := range map[string]fs.FileMode{"dir": fs.ModeDir | 0o777, "dir/file": 0o666} {
		if info, err := d.Stat(name); err != nil || info.Mode != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode, err, want)
		}
	}
}

// TestReplacedUnderway lets somebody swap a directory for a link as fast as possible while names below it are used:
// nothing may ever appear where the link leads.
func TestReplacedUnderway(t *testing.T) {
	d, path := open1(t)
	outside := t.TempDir()
	must(t, d.Mkdir("dir", 0o755))
	must(t, os.Symlink(outside, path+"/link"))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := unix.Renameat2(unix.AT_FDCWD, path+"/dir", unix.AT_FDCWD, path+"/link", unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	made, refused := 0, 0
	for made < 200 || refused < 200 {
		err := d.Mkdir("dir/new", 0o755)
		switch {
		case err == nil:
			made++
			for errors.Is(d.Remove("dir/new"), syscall.ELOOP) {
				time.Sleep(time.Microsecond) // let the other side run
			}
		case errors.Is(err, syscall.ELOOP):
			refused++
		case !errors.Is(err, fs.ErrExist):
			t.Fatal(err)
		}
	}
	stop()
	must(t, <-done)
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// loop makes a filesystem in a file and mounts it.
func loop(tb testing.TB, mkfs string, arguments ...string) string {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test must run as root: it mounts a loop device")
	}
	if _, err := exec.LookPath(mkfs); err != nil {
		tb.Fatalf("%v: install the package btrfs-progs, xfsprogs or e2fsprogs that has it", err)
	}
	image, dir := filepath.Join(tb.TempDir(), "image"), tb.TempDir()
	must(tb, os.WriteFile(image, nil, 0o600))
	must(tb, os.Truncate(image, 512<<20))
	run(tb, mkfs, append(arguments, "-q", image)...)
	run(tb, "mount", "-o", "loop", image, dir)
	tb.Cleanup(func() { run(tb, "umount", dir) })
	return dir
}

func run(tb testing.TB, name string, arguments ...string) {
	tb.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
}

func BenchmarkWriteFile(b *testing.B) {
	d, _ := open1(b)
	data := make([]byte, 600) // a record
	for b.Loop() {
		must(b, d.WriteFile("file", data, 0o600))
		must(b, d.Remove("file"))
	}
}

func BenchmarkRename(b *testing.B) {
	d, _ := open1(b)
	must(b, d.Mkdir("from", 0o755))
	must(b, d.Mkdir("to", 0o755))
	must(b, d.Mkdir("from/x", 0o755))
	for b.Loop() {
		must(b, d.Rename("from/x", "to/x"))
		must(b, d.Rename("to/x", "from/x"))
	}
}
