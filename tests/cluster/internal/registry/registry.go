// Package registry runs a container registry on a cluster's network and
// makes the nodes ask it first for every image.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
)

const port = "5000/tcp"

// Container is the name of the registry's container for a cluster.
func Container(cluster string) string { return cluster + "-registry" }

// Ensure starts the registry of a cluster unless it runs, and returns where
// this machine reaches it, such as "localhost:49153".
func Ensure(ctx context.Context, cluster, network string) (string, error) {
	container := Container(cluster)
	have, err := dockercli.HasContainer(ctx, container)
	if err != nil {
		return "", err
	}
	if have {
		err = dockercli.Run(ctx, "start", container)
	} else {
		err = create(ctx, container, cluster, network)
	}
	if err != nil {
		return "", fmt.Errorf("start the registry: %w", err)
	}
	return Address(ctx, cluster)
}

func create(ctx context.Context, container, cluster, network string) error {
	image, err := fromsource.RegistryImage(ctx)
	if err != nil {
		return err
	}
	return dockercli.Run(ctx, "run", "--detach", "--name", container, "--hostname", container,
		"--label", "io.hostpath-provisioner.cluster="+cluster, "--network", network,
		"--restart", "unless-stopped", "--publish", "127.0.0.1::"+port, "--volume", "/data", image)
}

// Address waits until the registry answers and returns its address.
// "localhost" matters: clients speak to it without TLS for that name.
func Address(ctx context.Context, cluster string) (string, error) {
	out, err := dockercli.Output(ctx, "port", Container(cluster), port)
	if err != nil {
		return "", fmt.Errorf("find the registry's port: %w", err)
	}
	first, _, _ := strings.Cut(out, "\n")
	address := "localhost" + first[strings.LastIndex(first, ":"):]
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			last = ping(ctx, address)
			return last == nil, nil
		})
	if err != nil {
		return "", fmt.Errorf("wait for the registry's answer: %w", errors.Join(err, last))
	}
	return address, nil
}

func ping(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v2/", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("registry at %s: %s", address, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// TeachNode makes a node look in the cluster's registry first for images of
// every registry, and then where the image's name says.
func TeachNode(ctx context.Context, cluster, node string) error {
	const folder = "/etc/containerd/certs.d/_default"
	script := "mkdir -p " + folder + " && cat >" + folder + "/hosts.toml"
	_, err := dockercli.Input(ctx, strings.NewReader(Hosts(cluster)), "exec", "--interactive", node, "sh", "-ec",
		script)
	if err != nil {
		return fmt.Errorf("tell containerd on %s about the registry: %w", node, err)
	}
	return nil
}

// Hosts is the content of containerd's hosts.toml.
func Hosts(cluster string) string {
	return "[host.\"http://" + Container(cluster) + ":5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
}
