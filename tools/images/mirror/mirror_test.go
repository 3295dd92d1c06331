package mirror

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// start runs a registry in memory and gives its HOST:PORT.
func start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestCopy: an image of two platforms and a chart are the same, to the digest, below a path of the other registry.
func TestCopy(t *testing.T) {
	from, to := start(t), start(t)
	image := from + "/hostpath-provisioner/driver:0.1.0"
	chart := from + "/hostpath-provisioner/charts/hostpath-provisioner:0.1.0"
	index, err := random.Index(512, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	artifact := mutate.ConfigMediaType(empty.Image, "application/vnd.cncf.helm.config.v1+json")
	if err := crane.Push(artifact, chart); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := Copy(t.Context(), []string{image, chart}, to+"/hub/", &said); err != nil {
		t.Fatal(err)
	}
	want := to + "/hub/hostpath-provisioner/driver:0.1.0\n" +
		to + "/hub/hostpath-provisioner/charts/hostpath-provisioner:0.1.0\n"
	if diff := cmp.Diff(want, said.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	for i, source := range []string{image, chart} {
		before, err := crane.Digest(source)
		if err != nil {
			t.Fatal(err)
		}
		if after, err := crane.Digest(strings.Fields(want)[i]); err != nil || after != before {
			t.Errorf("%s: digest %s, copied %s, %v", source, before, after, err)
		}
	}
}

func TestCopyRefuses(t *testing.T) {
	from, to := start(t), start(t)
	for what, test := range map[string]struct{ reference, registry, want string }{
		"what is not there": {from + "/a:1", to, "copy " + from + "/a:1 to " + to + "/a:1: "},
		"no name":           {"UPPER CASE", to, `image name "UPPER CASE"`},
		"a scheme":          {from + "/a:1", "https://" + to, "without a scheme"},
		"no registry":       {from + "/a:1", "", "want HOST or HOST/PATH"},
	} {
		if err := Copy(t.Context(), []string{test.reference}, test.registry, io.Discard); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}

func TestTargetKeepsTheDigest(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	got, err := Target("registry.k8s.io/sig-storage/livenessprobe"+digest, "mirror.example.com")
	if want := "mirror.example.com/sig-storage/livenessprobe" + digest; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestReferences(t *testing.T) {
	got := References("# all\nghcr.io/a/b:1\n\n  registry.k8s.io/c:2\n")
	if diff := cmp.Diff([]string{"ghcr.io/a/b:1", "registry.k8s.io/c:2"}, got); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}
