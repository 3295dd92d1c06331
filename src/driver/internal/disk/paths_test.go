package disk_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// TestPaths walks the life of a pool's path.
func TestPaths(t *testing.T) {
	inspect := func(t *testing.T, b bench, path string) disk.Facts {
		t.Helper()
		facts, err := b.host.Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		return facts
	}
	onEach(t, func(t *testing.T, b bench) {
		if facts := inspect(t, b, "/a/b"); facts != (disk.Facts{}) {
			t.Errorf("nothing there, yet %+v", facts)
		}
		if _, err := b.host.Open("/a/b"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open: %v, want %v", err, fs.ErrNotExist)
		}
		b.addDir("/a/b")
		if facts := inspect(t, b, "/a/b"); !facts.Path || facts.CSI || facts.MountPoint || facts.Dev == 0 {
			t.Errorf("no csi yet: %+v", facts)
		}
		if _, err := b.host.Open("/a/b"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open: %v, want %v", err, fs.ErrNotExist)
		}
		for range 2 {
			if err := b.host.Create("/a/b"); err != nil {
				t.Fatal(err)
			}
		}
		f, err := b.host.Open("/a/b")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat(".")
		if err != nil || info.Mode != fs.ModeDir|0o700 {
			t.Errorf("csi: %v, %v", info.Mode, err)
		}
		facts := inspect(t, b, "/a/b")
		if !facts.CSI || facts.Dev != info.Dev || facts.FSType == "" || len(facts.FSID) != 16 || facts.ReadOnly {
			t.Errorf("pool on device %d: %+v", info.Dev, facts)
		}
		h, err := f.Open(".")
		if err != nil || h.Dev != info.Dev || h.Ino != info.Ino {
			t.Errorf("handle %+v, %v of %+v", h, err, info)
		}
		h.Close()
		if space, err := f.Space(); err != nil || space.Size <= 0 || space.Free > space.Size-space.Used {
			t.Errorf("space %+v, %v", space, err)
		}
	})
}

// TestCreate makes paths over every kind of obstacle.
func TestCreate(t *testing.T) {
	tests := []struct {
		name, path string
		arrange    func(bench)
		want       error
		found      string // where csi is afterwards
	}{
		{"missing parents", "/x/y/z", func(bench) {}, none, "/x/y/z"},
		{"absolute link", "/pool", func(b bench) {
			b.symlink("/pool", "/data/disk")
			b.addDir("/data/disk")
		}, none, "/data/disk"},
		{
			"relative link", "/p/pool", func(b bench) { b.symlink("/p/pool", "../data"); b.addDir("/data") }, none,
			"/data",
		},
		{"link out of the root", "/pool", func(b bench) {
			b.symlink("/pool", "../../../data")
			b.addDir("/data")
		}, none, "/data"},
		{
			"link on the way", "/var/pool", func(b bench) { b.symlink("/var", "/data"); b.addDir("/data") }, none,
			"/data/pool",
		},
		{"dangling link", "/pool", func(b bench) { b.symlink("/pool", "/nowhere") }, syscall.ENOENT, ""},
		{"loop", "/pool", func(b bench) { b.symlink("/pool", "/pool") }, syscall.ELOOP, ""},
		{"file on the way", "/file/pool", func(b bench) { b.addFile("/file", nil) }, syscall.ENOTDIR, ""},
		{"file", "/file", func(b bench) { b.addFile("/file", nil) }, syscall.ENOTDIR, ""},
		{
			"csi is a link", "/pool",
			func(b bench) { b.symlink("/pool/csi", "/data"); b.addDir("/data") }, syscall.ELOOP,
			"",
		},
		{"csi is a file", "/pool", func(b bench) { b.addFile("/pool/csi", nil) }, syscall.ENOTDIR, ""},
		{"relative path", "pool", func(bench) {}, fs.ErrInvalid, ""},
		{"unclean path", "/pool/../x", func(bench) {}, fs.ErrInvalid, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b bench) {
				test.arrange(b)
				checkError(t, b.host.Create(test.path), test.want)
				f, err := b.host.Open(test.path)
				if !errors.Is(test.want, none) {
					checkError(t, err, test.want)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				there, err := b.openDir(test.found + "/csi")
				if err != nil {
					t.Fatal(err)
				}
				defer there.Close()
				got, _ := f.Stat(".")
				want, _ := there.Stat(".")
				if got != want || got.Ino == 0 {
					t.Errorf("opened %+v, want %+v", got, want)
				}
			})
		})
	}
}
