package fromsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/needs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/nodeimage"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/standin"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/preflight"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// Variable names a node image to use instead, or "source" to build one even
// where the public one could be pulled. CI's matrix of versions sets it.
const Variable = "HPP_NODE_IMAGE"

const fromSource = "source"

// Image is what kind's nodes run.
type Image struct {
	Name string
	// Config are lines of kind's configuration file that the image needs, and Env variables that kind reads: both are
	// empty for a public image.
	Config string
	Env    map[string]string
}

// PrepareDocker puts a stand-in for docker, in folder, first on this process's PATH where Docker cannot start
// privileged containers, which nodes are.
func PrepareDocker(folder string, note func(format string, args ...any)) error {
	needed, err := standin.Needed()
	if err != nil || !needed {
		return err
	}
	note("This host cannot start privileged containers (no CAP_SYS_RESOURCE): nodes get the same rights by " +
		"other means; nothing on the host changes.")
	return standin.Use(folder)
}

// NodeImage returns the image for new nodes: the public one where it can be pulled, else one that is built, with a step
// for each part, unless Docker has it.
func NodeImage(ctx context.Context, dir cache.Dir, steps *progress.Printer) (Image, error) {
	unprivileged, err := standin.Needed()
	if err != nil {
		return Image{}, err
	}
	name, ready, err := choose(ctx, unprivileged, steps.Note)
	if err == nil && !ready {
		name, err = build(ctx, dir, steps)
	}
	if err != nil || !isBuilt(name) {
		return Image{Name: name}, err
	}
	image := Image{Name: name, Config: "networking:\n  disableDefaultCNI: true\n"}
	driver, err := dockercli.Output(ctx, "info", "--format", "{{.Driver}}")
	if driver == "fuse-overlayfs" {
		// kind would choose a snapshotter that the image lacks. The nodes'
		// /var is a volume, outside Docker's storage driver.
		image.Env = map[string]string{"KIND_EXPERIMENTAL_CONTAINERD_SNAPSHOTTER": "overlayfs"}
	}
	return image, err
}

// Outdated reports whether nodes run an image that was built here and would be another one today.
func Outdated(image string) bool { return isBuilt(image) && image != nodeimage.Name() }

// isBuilt reports whether the image is one built here, which has no network
// plugin of its own.
func isBuilt(image string) bool { return strings.HasPrefix(image, nodeimage.Repository+":") }

// wanted is the image that the user or the versions name; "" means build.
func wanted(unprivileged bool) string {
	image := os.Getenv(Variable)
	switch {
	case image == fromSource, image == "" && unprivileged:
		return ""
	case image == "":
		return versions.PublicNodeImage
	default:
		return image
	}
}

// choose returns the image to use. The second result is false when it must be
// built first. unprivileged is true where nodes cannot be privileged
// containers: only an image built here starts there. note gets a line about a
// pull that was tried.
func choose(ctx context.Context, unprivileged bool, note func(format string, args ...any)) (string, bool, error) {
	built, wanted, named := nodeimage.Name(), wanted(unprivileged), os.Getenv(Variable) != ""
	if wanted != "" {
		have, err := dockercli.HasImage(ctx, wanted)
		if have || err != nil {
			return wanted, true, err
		}
	}
	// What was built before is taken without asking the network again.
	if wanted == "" || !named {
		have, err := dockercli.HasImage(ctx, built)
		if have || err != nil || wanted == "" {
			return built, have, err
		}
	}
	note("Pulling %s", wanted)
	err := dockercli.Pull(ctx, wanted)
	if err == nil {
		return wanted, true, nil
	}
	if named {
		return "", false, fmt.Errorf("node image %s, which %s names: %w", wanted, Variable, err)
	}
	note("It cannot be pulled (%v): building a node image from source instead.", err)
	return built, false, nil
}

// build checks for, and installs, what only a build from source needs, and builds the image.
func build(ctx context.Context, dir cache.Dir, steps *progress.Printer) (string, error) {
	packages, err := needs.Check(preflight.ThisHost(ctx), string(dir))
	if err != nil {
		return "", err
	}
	if len(packages) > 0 {
		steps.Expect(1)
		err := steps.Step(fmt.Sprintf("install with apt: %v", packages), 0, func(func(string)) error {
			return needs.Install(ctx, packages)
		})
		if err != nil {
			return "", err
		}
	}
	return nodeimage.Build(ctx, dir, steps)
}

// PurgeImages removes the images that were built here and given to Docker. The next cluster takes longer.
func PurgeImages(ctx context.Context) error {
	var errs []error
	for _, repository := range []string{nodeimage.Repository, registryRepository} {
		ids, err := dockercli.Output(ctx, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository)
		errs = append(errs, err)
		for image := range strings.FieldsSeq(ids) {
			errs = append(errs, dockercli.Run(ctx, "rmi", image))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove images: %w", err)
	}
	return nil
}
