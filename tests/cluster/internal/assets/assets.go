// Package assets provides the programs of a Kubernetes control plane that
// tests start without a cluster.
package assets

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// Folder returns a folder with kube-apiserver, etcd and kubectl, as envtest's
// KUBEBUILDER_ASSETS wants it, and kube-controller-manager. What is missing in
// the cache is compiled first, with progress on out.
func Folder(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
	programs := []struct {
		program versions.Program
		usual   time.Duration
		names   []string
	}{
		{versions.KubernetesProgram(), 9 * time.Minute, []string{"kube-apiserver", "kube-controller-manager", "kubectl"}},
		{versions.EtcdProgram(), 75 * time.Second, []string{"etcd"}},
	}
	steps := progress.New(out, len(programs))
	sources := map[string]string{} // name of the binary to its folder
	for _, p := range programs {
		folder := dir.Path(gobuild.Folder(p.program))
		if !dir.Has(gobuild.Folder(p.program)) {
			err := steps.Step("compile "+p.program.Name+" "+p.program.Version, p.usual, func(report func(string)) (err error) {
				folder, err = gobuild.Build(ctx, dir, p.program, report)
				return err
			})
			if err != nil {
				return "", err
			}
		}
		for _, name := range p.names {
			sources[name] = folder
		}
	}
	parts := []string{programs[0].program.Key(), programs[1].program.Key()}
	entry := "envtest/" + versions.Key(append(parts, slices.Sorted(maps.Keys(sources))...)...)
	return dir.Once(entry, func(target string) error {
		for name, folder := range sources {
			if err := os.Symlink(filepath.Join(folder, name), filepath.Join(target, name)); err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
		}
		return nil
	})
}

// CertManager returns a folder with cert-manager's controller, webhook and
// cainjector, which are compiled first if the cache does not have them.
func CertManager(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
	return compiled(ctx, dir, out, versions.CertManagerProgram(), 3*time.Minute)
}

// CSIProvisioner returns a folder with csi-provisioner, in the same way.
func CSIProvisioner(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
	return compiled(ctx, dir, out, versions.CSIProvisionerProgram(), 100*time.Second)
}

// CSIResizer returns a folder with csi-resizer, in the same way.
func CSIResizer(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
	return compiled(ctx, dir, out, versions.CSIResizerProgram(), 100*time.Second)
}

func compiled(
	ctx context.Context, dir cache.Dir, out io.Writer, p versions.Program, usual time.Duration,
) (folder string, err error) {
	if folder := gobuild.Folder(p); dir.Has(folder) {
		return dir.Path(folder), nil
	}
	err = progress.New(out, 1).Step("compile "+p.Name+" "+p.Version, usual, func(report func(string)) (err error) {
		folder, err = gobuild.Build(ctx, dir, p, report)
		return err
	})
	return folder, err
}
