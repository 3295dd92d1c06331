package nodeimage

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
)

func TestNameSaysWhichKubernetesItHas(t *testing.T) {
	if !strings.HasPrefix(Name(), Repository+":"+programs.KubernetesVersion+"-") {
		t.Errorf("%s does not say which Kubernetes it has", Name())
	}
}

func TestSandboxImageIsReadFromContainerdsConfiguration(t *testing.T) {
	got, err := sandboxImage("[x]\n  # use fixed sandbox image\n  sandbox_image = \"registry.example/pause:3.10\"\n")
	if err != nil || got != "registry.example/pause:3.10" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := sandboxImage("version = 2\n"); err == nil {
		t.Error("no error without the setting: pods would never start")
	}
}

// write makes files below a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), fs.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestKindFilesGetTheModesOfItsDockerfile(t *testing.T) {
	files, err := kindFiles(write(t, map[string]string{
		"usr/local/bin/entrypoint":           "#!",
		"kind/bin/hook.sh":                   "#!",
		"kind/README.txt":                    "",
		"etc/systemd/system/kubelet.service": "",
		"etc/containerd/config.toml":         "a\n  restrict_oom_score_adj = false\nb\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{
		"/usr/local/bin/entrypoint":           0o755,
		"/kind/bin/hook.sh":                   0o755,
		"/kind/README.txt":                    0o644,
		"/etc/systemd/system/kubelet.service": 0o644,
		"/etc/containerd/config.toml":         0o644,
	}
	if len(files) != len(want) {
		t.Errorf("%d files, want %d", len(files), len(want))
	}
	for _, f := range files {
		if f.Mode != want[f.Path] {
			t.Errorf("%s has mode %o, want %o", f.Path, f.Mode, want[f.Path])
		}
		if f.Path == containerdConfig && string(f.Data) != "a\n  restrict_oom_score_adj = true\nb\n" {
			t.Errorf("containerd's configuration is %q", f.Data)
		}
	}
}

func TestKindFilesFailWhenTheSettingIsGone(t *testing.T) {
	_, err := kindFiles(write(t, map[string]string{"etc/containerd/config.toml": "version = 9\n"}))
	if err == nil || !strings.Contains(err.Error(), "restrict_oom_score_adj") {
		t.Errorf("error %v, want one that names the setting", err)
	}
}

func TestUnitsAreEnabledAndMasked(t *testing.T) {
	links := map[string]string{}
	for _, f := range units() {
		links[f.Path] = f.Link
	}
	const kubelet = "/etc/systemd/system/kubelet.service"
	if got := links["/etc/systemd/system/multi-user.target.wants/kubelet.service"]; got != kubelet {
		t.Errorf("the kubelet would not start: its link leads to %q", got)
	}
	if got := links["/etc/systemd/system/systemd-binfmt.service"]; got != "/dev/null" {
		t.Errorf("binfmt is not masked (%q): it would change the host's kernel", got)
	}
}
