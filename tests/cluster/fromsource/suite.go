package fromsource

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/debian"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// E2ESuite is a folder with Kubernetes' end-to-end tests (e2e.test), ginkgo and kubectl, which they are run with, and
// agnhost, which their pods run.
const E2ESuite = "e2e-suite"

// PushImage gives an image to a cluster's registry.
type PushImage func(ctx context.Context, img v1.Image, image string) (digest string, err error)

// suitesImage is the line of Kubernetes that names an image which the tests of storage run. What they call in it is a
// shell with its usual programs, or agnhost.
var suitesImage = regexp.MustCompile(`configs\[(?:Agnhost|BusyBox|GlibcDnsTesting|Nginx)\] += ` +
	`Config\{list\.PromoterE2eRegistry, "(.+)", "(.+)"\}`)

// SuiteImages sees to it that nodes can run the pods of Kubernetes' tests of storage: it leaves each image to its own
// registry where that answers, else pushes one to the cluster's: Debian's busybox and agnhost, from E2ESuite's folder.
func SuiteImages(ctx context.Context, steps *progress.Printer, suite string, push PushImage) error {
	names, err := suiteImages(ctx)
	if err != nil {
		return err
	}
	return steps.Step("images of the suite's pods: "+strings.Join(names, ", "), 0, func(func(string)) error {
		var img v1.Image
		for _, name := range names {
			if canPull(ctx, sidecarRegistry+"/"+name) {
				continue
			}
			if img == nil {
				if img, err = suiteImage(ctx, filepath.Join(suite, "agnhost")); err != nil {
					return err
				}
			}
			if _, err := push(ctx, img, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// suiteImages are the names in sidecarRegistry, as Kubernetes' sources have them.
func suiteImages(ctx context.Context) ([]string, error) {
	kubernetes := programs.Kubernetes()
	module, err := gobuild.Fetch(ctx, kubernetes.Module, kubernetes.Version)
	if err != nil {
		return nil, err
	}
	const file = "test/utils/image/manifest.go"
	text, err := os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(file)))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, match := range suitesImage.FindAllStringSubmatch(string(text), -1) {
		names = append(names, "e2e-test-images/"+match[1]+":"+match[2])
	}
	if len(names) != 4 {
		return nil, fmt.Errorf("%s of Kubernetes %s names the images %q of storage tests, want four",
			file, kubernetes.Version, names)
	}
	return names, nil
}

func suiteImage(ctx context.Context, agnhost string) (v1.Image, error) {
	const busybox = "/bin/busybox"
	files, err := debian.Programs(ctx, runtime.GOARCH, []string{"busybox-static"}, busybox)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file.Path != busybox {
			continue
		}
		list, err := exec.CommandContext(ctx, file.Source, "--list").Output()
		if err != nil {
			return nil, fmt.Errorf("ask %s what it can do: %w", file.Source, err)
		}
		for applet := range strings.FieldsSeq(string(list)) {
			if applet != filepath.Base(busybox) {
				files = append(files, scratch.File{Path: "/bin/" + applet, Link: busybox})
			}
		}
	}
	files = append(files, scratch.File{Path: "/agnhost", Source: agnhost},
		scratch.File{Path: "/tmp", Dir: true, Mode: 0o1777})
	return scratch.Image(scratch.Config{
		OS: "linux", Arch: runtime.GOARCH, Entrypoint: []string{"/agnhost"}, Env: []string{"PATH=/bin"},
	}, files...)
}
