package fromsource

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/nodeimage"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// Program returns the folder with a program's binaries: csi-provisioner, csi-resizer, csi-snapshotter,
// snapshot-controller, local-path-provisioner, cert-manager with its controller, webhook and cainjector, E2ESuite, or
// ControlPlane. What the cache lacks is compiled first, with progress on out.
func Program(ctx context.Context, dir cache.Dir, out io.Writer, name string) (string, error) {
	if name == ControlPlane {
		return controlPlane(ctx, dir, out)
	}
	program, known := programs.Named()[name]
	if !known {
		return "", fmt.Errorf("no program %q is known: want one of %q", name, Programs())
	}
	return compiled(ctx, dir, progress.New(out, 1), program)
}

// Programs are the names that Program knows.
func Programs() []string { return append(slices.Sorted(maps.Keys(programs.Named())), ControlPlane) }

// ControlPlane is kube-apiserver, etcd and kubectl, as envtest's KUBEBUILDER_ASSETS wants them, and
// kube-controller-manager.
const ControlPlane = "control-plane"

func controlPlane(ctx context.Context, dir cache.Dir, out io.Writer) (string, error) {
	steps := progress.New(out, 2)
	kubernetes, err := compiled(ctx, dir, steps, programs.Kubernetes())
	if err != nil {
		return "", err
	}
	etcd, err := compiled(ctx, dir, steps, programs.Etcd())
	if err != nil {
		return "", err
	}
	sources := map[string]string{ // name of the binary to its folder
		"kube-apiserver": kubernetes, "kube-controller-manager": kubernetes, "kubectl": kubernetes, "etcd": etcd,
	}
	parts := []string{programs.Kubernetes().Key(), programs.Etcd().Key()}
	entry := "envtest/" + programs.Key(append(parts, slices.Sorted(maps.Keys(sources))...)...)
	return dir.Once(entry, func(target string) error {
		for name, folder := range sources {
			if err := os.Symlink(filepath.Join(folder, name), filepath.Join(target, name)); err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
		}
		return nil
	})
}

func compiled(
	ctx context.Context, dir cache.Dir, steps *progress.Printer, p programs.Program,
) (folder string, err error) {
	if folder := gobuild.Folder(p); dir.Has(folder) {
		return dir.Path(folder), nil
	}
	err = steps.Step("compile "+p.Name+" "+p.Version, p.Usual, func(report func(string)) (err error) {
		folder, err = gobuild.Build(ctx, dir, p, report)
		return err
	})
	return folder, err
}

// sidecarRegistry is where the chart takes upstream's sidecars from.
const sidecarRegistry = "registry.k8s.io"

// Push puts a binary into an image of its own, as its entrypoint, at path target, and gives it to a cluster's registry.
type Push func(ctx context.Context, binary, target, image string) (digest string, err error)

// ProgramImage sees to it that nodes can run a sidecar's image ("sig-storage/csi-provisioner:v6.3.0"): it leaves it to
// its own registry where that answers, else compiles the program and pushes it to the cluster's.
func ProgramImage(ctx context.Context, dir cache.Dir, steps *progress.Printer, image string, push Push) error {
	program, _, _ := strings.Cut(path.Base(image), ":")
	p := programs.Named()[program]
	what, usual := "image "+sidecarRegistry+"/"+image, time.Duration(0)
	earlier := dir.Has(gobuild.Folder(p))
	public := !earlier && canPull(ctx, sidecarRegistry+"/"+image)
	switch {
	case public:
		what += ": the nodes pull it"
	case earlier:
		what += ": push, compiled earlier"
	default:
		what += ": cannot be pulled, compile and push"
		usual = p.Usual
	}
	return steps.Step(what, usual, func(report func(string)) error {
		if public {
			return nil
		}
		folder, err := gobuild.Build(ctx, dir, p, report)
		if err != nil {
			return err
		}
		_, err = push(ctx, filepath.Join(folder, program), "/"+program, image)
		return err
	})
}

// canPull asks the registry for the image's description, and does not wait
// long: no answer is an answer too.
func canPull(ctx context.Context, image string) bool {
	ref, err := name.ParseReference(image)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	_, err = remote.Head(ref, remote.WithContext(ctx))
	return err == nil
}

// registryRepository holds the registry's own image in Docker's store.
const registryRepository = "localhost/hostpath-provisioner/registry"

// RegistryImage compiles the cluster's registry and gives it to Docker, unless
// Docker has it already. The tag is the binary's checksum.
func RegistryImage(ctx context.Context) (string, error) {
	root, err := repo.Root()
	if err != nil {
		return "", err
	}
	work, err := os.MkdirTemp("", "hpp-registry-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, "registryd")
	target := compile.Target{
		Dir: filepath.Join(root, "tests"), Package: "./cluster/fromsource/internal/registryd",
		OS: "linux", Arch: runtime.GOARCH, Output: binary,
	}
	if err := compile.Run(ctx, target); err != nil {
		return "", err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return "", err
	}
	image := fmt.Sprintf("%s:%x", registryRepository, sha256.Sum256(content))[:len(registryRepository)+13]
	if have, err := dockercli.HasImage(ctx, image); have || err != nil {
		return image, err
	}
	img, err := scratch.Image(scratch.Config{OS: "linux", Arch: runtime.GOARCH, Entrypoint: []string{"/registryd"}},
		scratch.File{Path: "/registryd", Data: content}, scratch.File{Path: "/data", Dir: true})
	if err != nil {
		return "", err
	}
	return image, nodeimage.LoadIntoDocker(ctx, image, img)
}
