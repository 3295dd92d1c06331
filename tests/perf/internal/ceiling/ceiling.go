// Package ceiling puts a driver that only mounts into a cluster, with a csi-provisioner on every node: what the burst
// reaches with it is the most that Kubernetes lets any driver of that layout reach there.
package ceiling

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
)

// What the manifest makes.
const (
	class     = "perf-ceiling"
	namespace = "perf-ceiling-system"
	name      = "ceiling" // of the DaemonSet, its account and its program
	image     = "perf/ceiling:latest"
)

// manifest has PROVISIONER for the image of csi-provisioner.
//
//go:embed manifest.yaml
var manifest string

// Install builds the driver from the tests module in folder tests, and installs it with an image of csi-provisioner.
func Install(
	ctx context.Context, c *kindcluster.Cluster, client kubernetes.Interface, provisioner, tests string,
) error {
	if err := push(ctx, c, tests); err != nil {
		return err
	}
	objects := strings.ReplaceAll(manifest, "PROVISIONER", provisioner)
	if _, err := c.Kubectl(ctx, strings.NewReader(objects), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("install a driver that only mounts: %w", err)
	}
	_, err := c.Kubectl(ctx, nil, "rollout", "status", "daemonset/"+name, "-n", namespace, "--timeout=120s")
	if err != nil {
		return err
	}
	return published(ctx, client)
}

func push(ctx context.Context, c *kindcluster.Cluster, tests string) error {
	dir, err := os.MkdirTemp("", "hpp-ceiling-")
	if err != nil {
		return fmt.Errorf("make a folder for the driver that only mounts: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, name)
	target := compile.Target{
		Dir: tests, Package: "./perf/ceiling", OS: runtime.GOOS, Arch: runtime.GOARCH, Output: binary,
	}
	if err := compile.Run(ctx, target); err != nil {
		return err
	}
	_, err = c.PushBinary(ctx, binary, "/"+name, image)
	return err
}

// published waits until the scheduler can know the capacity of every node.
func published(ctx context.Context, client kubernetes.Interface) error {
	set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the DaemonSet of the driver that only mounts: %w", err)
	}
	have, want := 0, int(set.Status.DesiredNumberScheduled)
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			objects, err := client.StorageV1().CSIStorageCapacities(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			have = len(objects.Items)
			return have == want, nil
		})
	if err != nil {
		return fmt.Errorf("the driver that only mounts has %d capacity objects, want one for each of %d nodes: %w",
			have, want, err)
	}
	return nil
}

// Remove removes all of it, also after an interrupt. Until its pods have ended the kubelet knows the driver.
func Remove(ctx context.Context, c *kindcluster.Cluster) error {
	_, err := c.Kubectl(context.WithoutCancel(ctx), strings.NewReader(manifest), "delete", "--ignore-not-found",
		"--timeout=120s", "-f", "-")
	return err
}

// System is it as the burst measures it.
func System() burst.System {
	return burst.System{
		Name: burst.Ceiling, Class: class, Namespace: namespace, Accounts: []string{name}, Processes: []string{name},
	}
}
