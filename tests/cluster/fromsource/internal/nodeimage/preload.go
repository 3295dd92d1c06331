package nodeimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
)

// preload starts base, imports the images into its containerd, and commits
// the result as image. A node then has them without pulling.
func preload(ctx context.Context, base, podImages, image string) (err error) {
	container := fmt.Sprintf("hpp-node-image-%d", os.Getpid())
	err = dockercli.Run(ctx, "run", "--detach", "--name", container, "--privileged", "--cgroupns=private",
		"--tmpfs", "/tmp", "--tmpfs", "/run", "--entrypoint", "sleep", base, "infinity")
	if err != nil {
		return fmt.Errorf("start a container of the new node image: %w", err)
	}
	defer func() {
		// Also when ctx is over: nothing of a failed build stays.
		clean := context.WithoutCancel(ctx)
		err = errors.Join(err, dockercli.Remove(clean, "container", container))
		err = errors.Join(err, dockercli.Run(clean, "rmi", base))
	}()
	if err := dockercli.Run(ctx, "exec", "--detach", container, "containerd", "--log-level", "warn"); err != nil {
		return err
	}
	if err := waitForContainerd(ctx, container); err != nil {
		return err
	}
	archive, err := os.Open(podImages)
	if err != nil {
		return err
	}
	defer archive.Close()
	if _, err := dockercli.Input(ctx, archive, "exec", "--interactive", container,
		"ctr", "--namespace", "k8s.io", "images", "import", "--no-unpack", "-"); err != nil {
		return fmt.Errorf("import the control plane's images: %w", err)
	}
	const stop = "pkill -x containerd; while pgrep -x containerd >/dev/null; do sleep 0.1; done"
	if err := dockercli.Run(ctx, "exec", container, "sh", "-c", stop); err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	return commit(ctx, container, image)
}

func waitForContainerd(ctx context.Context, container string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			last = dockercli.Run(ctx, "exec", container, "ctr", "version")
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("wait for containerd: %w", errors.Join(err, last))
	}
	return nil
}

// commit keeps the base image's stop signal and environment, and sets the
// entrypoint again, which the container was started without.
func commit(ctx context.Context, container, image string) error {
	entry, err := json.Marshal(nodeEntrypoint())
	if err != nil {
		return err
	}
	if err := dockercli.Run(
		ctx, "commit", "--change", "ENTRYPOINT "+string(entry), "--change", "CMD []", container, image,
	); err != nil {
		return fmt.Errorf("keep the node image as %s: %w", image, err)
	}
	return nil
}
