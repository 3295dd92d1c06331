// Command ceiling is a CSI driver that binds a mount and does nothing else: it answers every call at once and stores
// nothing. What a cluster does with it is the most that any driver of its layout could reach there.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driver = "ceiling.perf.hostpath-provisioner"
	// kubeletDir is the kubelet's, on a node of kind and in the container.
	kubeletDir = "/var/lib/kubelet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Getenv("NODE_NAME"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ceiling:", err)
		os.Exit(1)
	}
}

// serve runs until ctx ends.
func serve(ctx context.Context, node string) error {
	if node == "" {
		return errors.New("want the node's name in NODE_NAME")
	}
	n := &nothing{node: node, socket: filepath.Join(kubeletDir, "plugins", driver, "csi.sock")}
	if err := os.MkdirAll(n.data(), 0o777); err != nil {
		return err
	}
	drivers := grpc.NewServer()
	csi.RegisterIdentityServer(drivers, n)
	csi.RegisterControllerServer(drivers, n)
	csi.RegisterNodeServer(drivers, n)
	plugins := grpc.NewServer()
	registration.RegisterRegistrationServer(plugins, n)
	ended := make(chan error, 2)
	for path, server := range map[string]*grpc.Server{
		n.socket: drivers,
		filepath.Join(kubeletDir, "plugins_registry", driver+"-reg.sock"): plugins,
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
		if err != nil {
			return err
		}
		go func() { ended <- server.Serve(listener) }()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		drivers.Stop() // closing the listeners removes the sockets
		plugins.Stop()
		return nil
	}
}
