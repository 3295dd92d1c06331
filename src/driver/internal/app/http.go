package app

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/servingtls"
)

// addHealth adds the probes, with the metrics unless these are served over TLS.
func (d *driver) addHealth(ctx context.Context, ready []health.Check) error {
	if d.httpAddress == "" {
		return nil
	}
	self, err := grpc.NewClient(d.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("make a client of the driver's own socket: %w", err)
	}
	d.OnClose(self.Close)
	// Asked through its own socket, a server that accepts but does not answer is found out.
	live := health.Check{Name: "driver", Do: func(ctx context.Context) error { return csi.Alive(ctx, self) }}
	config := health.Config{Address: d.httpAddress, Live: live, Ready: ready, Log: d.log}
	if d.metricsTLSAddress == "" {
		config.Metrics = d.registry
	}
	return d.addHTTP(ctx, "health", config)
}

// addMetrics adds the metrics over TLS.
func (d *driver) addMetrics(ctx context.Context) error {
	if d.metricsTLSAddress == "" {
		return nil
	}
	secure, err := servingtls.New(d.metricsTLS, d.log)
	if err != nil {
		return fmt.Errorf("metrics over TLS (--metrics-tls-cert-dir): %w", err)
	}
	return d.addHTTP(ctx, "metrics", health.Config{
		Address: d.metricsTLSAddress, Metrics: d.registry, TLS: secure, Log: d.log,
	})
}

func (d *driver) addHTTP(ctx context.Context, name string, config health.Config) error {
	server, err := health.New(config)
	if err != nil {
		return err
	}
	return d.AddServer(ctx, name, server)
}
