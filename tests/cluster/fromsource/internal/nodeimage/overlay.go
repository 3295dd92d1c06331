package nodeimage

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

const containerdConfig = "/etc/containerd/config.toml"

// parts are the folders that a node image is made from.
type parts struct {
	// system holds the archives of package rootfs.
	system string
	// kindModule is the source of kind, whose images/base/files are the
	// node's units, scripts and settings.
	kindModule                                   string
	kubernetes, etcd, containerd, coredns, pause string
}

// overlay returns what a node has on top of Debian.
func overlay(ctx context.Context, p parts) ([]scratch.File, error) {
	files, err := kindFiles(filepath.Join(p.kindModule, "images/base/files"))
	if err != nil {
		return nil, err
	}
	spec, err := podSpec(ctx, filepath.Join(p.containerd, "ctr"))
	if err != nil {
		return nil, err
	}
	files = append(files,
		scratch.File{Path: "/etc/containerd/cri-base.json", Data: spec, Mode: 0o644},
		scratch.File{Path: "/etc/kubernetes/manifests", Dir: true},
		scratch.File{Path: "/hostpath-provisioner/entrypoint", Data: []byte(entrypoint)},
		scratch.File{Path: "/kind/version", Data: []byte(programs.KubernetesVersion), Mode: 0o644},
		// kind reads both before it looks at its own settings. The network
		// plugin comes after creation; storage is what we are here to bring,
		// so there is only something harmless to apply.
		scratch.File{Path: "/kind/manifests/default-cni.yaml", Data: []byte(emptyManifest("network")), Mode: 0o644},
		scratch.File{Path: "/kind/manifests/default-storage.yaml", Data: []byte(emptyManifest("storage")), Mode: 0o644},
	)
	for _, name := range []string{"kubelet", "kubeadm", "kubectl"} {
		files = append(files, scratch.File{Path: "/usr/bin/" + name, Source: filepath.Join(p.kubernetes, name)})
	}
	for _, name := range []string{"containerd", "ctr", "containerd-shim-runc-v2"} {
		files = append(files, scratch.File{Path: "/usr/local/bin/" + name, Source: filepath.Join(p.containerd, name)})
	}
	for _, name := range []string{"host-local", "loopback", "ptp", "portmap"} {
		files = append(files, scratch.File{Path: "/opt/cni/bin/" + name, Link: "/usr/lib/cni/" + name})
	}
	return append(files, units()...), nil
}

// units enables and masks services as kind's Dockerfile does.
func units() []scratch.File {
	const folder = "/etc/systemd/system/"
	files := []scratch.File{{Path: folder + "systemd-binfmt.service", Link: "/dev/null"}}
	for _, unit := range []string{"kubelet.service", "containerd.service", "undo-mount-hacks.service"} {
		files = append(files, scratch.File{Path: folder + "multi-user.target.wants/" + unit, Link: folder + unit})
	}
	return files
}

func emptyManifest(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hostpath-provisioner-no-default-" + name +
		"\n  namespace: kube-public\n"
}

// kindFiles returns the static files of kind's node image with the modes that
// its Dockerfile gives them.
func kindFiles(root string) ([]scratch.File, error) {
	var files []scratch.File
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		target := strings.TrimPrefix(path, root)
		file := scratch.File{Path: target, Source: path, Mode: 0o644}
		if strings.HasPrefix(target, "/usr/local/bin/") || strings.HasPrefix(target, "/kind/bin/") {
			file.Mode = 0o755
		}
		if target == containerdConfig {
			if file, err = unprivileged(file); err != nil {
				return err
			}
		}
		files = append(files, file)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the node files of kind in %s: %w", root, err)
	}
	return files, nil
}

// unprivileged lets containerd work where it may not lower oom_score_adj,
// which takes the capability that some hosts lack.
func unprivileged(config scratch.File) (scratch.File, error) {
	const was, is = "restrict_oom_score_adj = false", "restrict_oom_score_adj = true"
	raw, err := os.ReadFile(config.Source)
	if err != nil {
		return config, err
	}
	if !strings.Contains(string(raw), was) {
		return config, fmt.Errorf("%s has no line %q any more: look at what kind changed", config.Source, was)
	}
	config.Source, config.Data = "", []byte(strings.Replace(string(raw), was, is, 1))
	return config, nil
}

// podSpec is containerd's default OCI spec with kind's hook, and without
// limits, so that pods inherit those of the node.
func podSpec(ctx context.Context, ctr string) ([]byte, error) {
	raw, err := exec.CommandContext(ctx, ctr, "oci", "spec").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for containerd's default spec: %w", ctr, err)
	}
	var spec map[string]any
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("read containerd's default spec: %w", err)
	}
	hooks, _ := spec["hooks"].(map[string]any)
	if hooks == nil {
		hooks = map[string]any{}
	}
	existing, _ := hooks["createContainer"].([]any)
	hooks["createContainer"] = append(existing, map[string]any{"path": "/kind/bin/mount-product-files.sh"})
	spec["hooks"] = hooks
	if process, ok := spec["process"].(map[string]any); ok {
		delete(process, "rlimits")
	}
	return json.MarshalIndent(spec, "", "  ")
}
