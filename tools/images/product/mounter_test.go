package product_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// TestTheMountersProgramsRun with nothing but the image's own files. They are Debian's, from the cache or its archive.
func TestTheMountersProgramsRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root: it changes the root directory")
	}
	root := t.TempDir()
	built, err := product.Build(t.Context(), product.Options{
		Root: module(t, "mounter"), Names: []string{"mounter"}, Version: "1",
		Platforms: []product.Platform{{OS: "linux", Arch: runtime.GOARCH}},
	})
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, built[0].Images[0].Image, root)
	for program, says := range map[string]string{"/sbin/mkfs.xfs": "mkfs.xfs version", "/sbin/blkid": "libblkid"} {
		cmd := exec.CommandContext(t.Context(), program, "-V")
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		cmd.Env, cmd.Dir = []string{}, "/"
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%s -V: %v: %s", program, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "usr/share/doc/xfsprogs/copyright")); err != nil {
		t.Error(err)
	}
}

// unpack writes the files of an image below root.
func unpack(t *testing.T, img v1.Image, root string) {
	t.Helper()
	stream := mutate.Extract(img)
	defer stream.Close()
	for files := tar.NewReader(stream); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = write(path, header.FileInfo().Mode().Perm(), files)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string, mode os.FileMode, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
