package fromsource

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// TestSuiteImages: Kubernetes' sources name them as they did.
func TestSuiteImages(t *testing.T) {
	names, err := suiteImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(names, " ")
	for _, want := range []string{"/agnhost:2.", "/busybox:1.", "/glibc-dns-testing:2.", "/nginx:1."} {
		if !strings.Contains(all, "e2e-test-images"+want) {
			t.Errorf("the images %q lack %s", names, want)
		}
	}
}

// TestSuiteImageHasAShell, what the tests call in it, and the program that it is named after.
func TestSuiteImageHasAShell(t *testing.T) {
	agnhost := filepath.Join(t.TempDir(), "agnhost")
	if err := os.WriteFile(agnhost, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := suiteImage(t.Context(), agnhost)
	if err != nil {
		t.Fatal(err)
	}
	stream := mutate.Extract(img)
	defer stream.Close()
	found := map[string]*tar.Header{}
	for files := tar.NewReader(stream); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found["/"+strings.Trim(header.Name, "/")] = header
	}
	for _, program := range []string{"sh", "dd", "grep", "nsenter", "sha256sum"} {
		if h := found["/bin/"+program]; h == nil || h.Linkname != "/bin/busybox" {
			t.Errorf("/bin/%s is %+v, want a link to busybox", program, h)
		}
	}
	for path, mode := range map[string]int64{"/agnhost": 0o755, "/bin/busybox": 0o755, "/tmp": 0o1777} {
		if h := found[path]; h == nil || h.Mode != mode || h.Typeflag == tar.TypeSymlink {
			t.Errorf("%s is %+v, want mode %o", path, h, mode)
		}
	}
}
