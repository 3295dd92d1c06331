package scratch_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// entry is what a test looks at in an archive.
type entry struct {
	Name, Link, Content string
	Mode                int64
	Type                byte
}

func archive(t *testing.T, files ...scratch.File) []entry {
	t.Helper()
	var buf bytes.Buffer
	if err := scratch.WriteTar(&buf, files...); err != nil {
		t.Fatal(err)
	}
	var all []entry
	for r := tar.NewReader(&buf); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !hdr.ModTime.Equal(time.Unix(0, 0)) || hdr.Uid != 0 || hdr.Gid != 0 || hdr.Uname != "" {
			t.Errorf("%s carries a time or an owner of the build host: %v %d:%d %q",
				hdr.Name, hdr.ModTime, hdr.Uid, hdr.Gid, hdr.Uname)
		}
		all = append(all, entry{
			Name: hdr.Name, Link: hdr.Linkname, Content: string(content), Mode: hdr.Mode, Type: hdr.Typeflag,
		})
	}
}

func TestTarIsSortedWithParentsAndLastOneWins(t *testing.T) {
	source := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := archive(t,
		scratch.File{Path: "/usr/bin/x", Source: source},
		scratch.File{Path: "/etc/conf", Data: []byte("old"), Mode: 0o644},
		scratch.File{Path: "/bin", Link: "usr/bin"},
		scratch.File{Path: "etc/conf", Data: []byte("new"), Mode: 0o600},
		scratch.File{Path: "/run/", Dir: true},
	)
	want := []entry{
		{Name: "bin", Link: "usr/bin", Mode: 0o755, Type: tar.TypeSymlink},
		{Name: "etc/", Mode: 0o755, Type: tar.TypeDir},
		{Name: "etc/conf", Content: "new", Mode: 0o600, Type: tar.TypeReg},
		{Name: "run/", Mode: 0o755, Type: tar.TypeDir},
		{Name: "usr/", Mode: 0o755, Type: tar.TypeDir},
		{Name: "usr/bin/", Mode: 0o755, Type: tar.TypeDir},
		{Name: "usr/bin/x", Content: "program", Mode: 0o755, Type: tar.TypeReg},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func TestImagesOfTheSameFilesHaveTheSameDigest(t *testing.T) {
	image := func(content string) string {
		img, err := scratch.Image(
			scratch.Config{OS: "linux", Arch: "arm64", Entrypoint: []string{"/x"}, Labels: map[string]string{"a": "b"}},
			scratch.File{Path: "/x", Data: []byte(content)})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest.String()
	}
	first := image("1")
	time.Sleep(2 * time.Millisecond)
	if again := image("1"); again != first {
		t.Errorf("digests %s and %s", first, again)
	}
	if other := image("2"); other == first {
		t.Error("other content has the same digest")
	}
}

func TestMissingSourceIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := scratch.Image(scratch.Config{}, scratch.File{Path: "/x", Source: missing})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one about %s", err, missing)
	}
}
