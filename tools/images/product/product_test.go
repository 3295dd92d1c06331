package product_test

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// TestMakeBuildsWhatImagesHave: a binary of `make build` is made with the flags of the images, and tests use Target.
func TestMakeBuildsWhatImagesHave(t *testing.T) {
	args := compile.Args(product.Target("..", "./src/driver", "$(VERSION)", "bin/"))
	flags := slices.Index(args, "-ldflags")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nLDFLAGS := " + args[flags+1] + "\n",
		"\tCGO_ENABLED=0 go build " + strings.Join(args[2:flags], " ") + " -ldflags '$(LDFLAGS)' -o bin/ ./src/driver ",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Makefile does not say %q", want)
		}
	}
}

func TestParsePlatforms(t *testing.T) {
	got, err := product.ParsePlatforms("linux/amd64, linux/arm64")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]product.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}},
		got); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{"", "linux", "linux/", "/amd64", "linux/amd64,"} {
		if _, err := product.ParsePlatforms(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

// wrapped is an image of a file for each architecture.
func wrapped(t *testing.T, arches ...string) product.Built {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(binary, []byte("static"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := product.Built{Name: "tool"}
	for _, arch := range arches {
		p := product.Platform{OS: "linux", Arch: arch}
		img, err := product.Wrap(p, binary, "/tool", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Images = append(b.Images, product.PlatformImage{Platform: p, Image: img})
	}
	return b
}

// newRegistry returns the address of a registry that lives as long as the test.
func newRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestPushOfOnePlatformIsAPlainImage(t *testing.T) {
	reference := newRegistry(t) + "/x/tool:1"
	digest, err := product.Push(t.Context(), wrapped(t, "amd64"), reference)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := img.Digest(); err != nil || got != digest {
		t.Errorf("digest %s (%v), want %s", got, err, digest)
	}
	if config.Architecture != "amd64" || !cmp.Equal(config.Config.Entrypoint, []string{"/tool"}) {
		t.Errorf("%s with entrypoint %v", config.Architecture, config.Config.Entrypoint)
	}
}

func TestPushOfTwoPlatformsIsAnIndex(t *testing.T) {
	reference := newRegistry(t) + "/x/tool:1"
	if _, err := product.Push(t.Context(), wrapped(t, "amd64", "arm64"), reference); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if config, err := img.ConfigFile(); err != nil || config.Architecture != arch {
			t.Errorf("asked for %s, got %v (%v)", arch, config, err)
		}
	}
}

func TestSaveReplacesALayout(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if _, err := product.Save(wrapped(t, "amd64", "arm64"), dir, "1"); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "tool"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1" {
		t.Errorf("layout lists %+v, want one index with tag 1", manifest.Manifests)
	}
}

func TestPushNamesAWrongReference(t *testing.T) {
	if _, err := product.Push(t.Context(), wrapped(t, "amd64"), "UPPER/x:1"); err == nil ||
		!strings.Contains(err.Error(), "UPPER/x:1") {
		t.Errorf("error %v, want the name in it", err)
	}
}

// module is a repository with programs that do nothing.
func module(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n"}
	for _, name := range names {
		files["src/"+name+"/main.go"] = "package main\n\nfunc main() {}\n"
	}
	for file, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestControllerAndOperatorAreNotRoot: their pods demand that, and name no user where OpenShift chooses one.
func TestControllerAndOperatorAreNotRoot(t *testing.T) {
	built, err := product.Build(t.Context(), product.Options{
		Root: module(t, "controller", "driver", "operator"), Version: "1",
		Names:     []string{"controller", "driver", "operator"},
		Platforms: []product.Platform{{OS: "linux", Arch: "amd64"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]string{}
	for _, b := range built {
		config, err := b.Images[0].Image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		users[b.Name] = config.Config.User
	}
	want := map[string]string{"controller": "65532:65532", "driver": "", "operator": "65532:65532"}
	if diff := cmp.Diff(want, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}
