// Command ceiling is a CSI driver that does nothing: it answers every call at once and stores nothing. What a cluster
// does with it is the most that any driver could reach there. It takes the real driver's place in the real driver's
// DaemonSet, so that everything around it is the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// options are those flags of the real driver that matter here.
type options struct{ endpoint, driverName, topologyKey, kubeletDir, httpAddress, nodeName string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := parse(os.Args[1:], os.Getenv("NODE_NAME"))
	if err == nil {
		err = serve(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ceiling:", err)
		os.Exit(1)
	}
}

// parse passes over flags that only the real driver has a use for.
func parse(args []string, node string) (options, error) {
	o := options{nodeName: node}
	set := flag.NewFlagSet("ceiling", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&o.endpoint, "endpoint", "", "")
	set.StringVar(&o.driverName, "driver-name", "", "")
	set.StringVar(&o.topologyKey, "topology-key", "", "")
	set.StringVar(&o.kubeletDir, "kubelet-dir", "", "")
	set.StringVar(&o.httpAddress, "http-address", "", "")
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if set.Lookup(name) == nil {
			continue
		}
		if err := set.Parse([]string{arg}); err != nil {
			return o, err
		}
	}
	if o.endpoint == "" || o.driverName == "" || o.topologyKey == "" || o.kubeletDir == "" || o.nodeName == "" {
		return o, errors.New("want --endpoint, --driver-name, --topology-key, --kubelet-dir, and NODE_NAME, " +
			"as the real driver has them")
	}
	return o, nil
}

// serve runs until ctx ends.
func serve(ctx context.Context, o options) error {
	socket := strings.TrimPrefix(o.endpoint, "unix://")
	n := &nothing{options: o, socket: socket}
	drivers := grpc.NewServer()
	csi.RegisterIdentityServer(drivers, n)
	csi.RegisterControllerServer(drivers, n)
	csi.RegisterNodeServer(drivers, n)
	plugins := grpc.NewServer()
	registration.RegisterRegistrationServer(plugins, n)
	health := &http.Server{
		Addr: o.httpAddress, ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
		}),
	}
	ended := make(chan error, 3)
	for path, server := range map[string]*grpc.Server{
		socket: drivers,
		filepath.Join(o.kubeletDir, "plugins_registry", o.driverName+"-reg.sock"): plugins,
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
	go func() { ended <- health.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		drivers.Stop() // closing the listeners removes the sockets
		plugins.Stop()
		return health.Close()
	}
}
