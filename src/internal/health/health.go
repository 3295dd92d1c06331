// Package health answers over HTTP whether a process lives (/healthz, /livez), whether it is ready (/readyz), and with
// its metrics (/metrics), these also over TLS.
package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/places"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// Check is one condition of being alive or ready. Name is what the answer calls it.
type Check struct {
	Name string
	Do   func(ctx context.Context) error
}

// Config is what a server is made of. Address and Log are required, and one of Live and Metrics.
type Config struct {
	// Address is host:port, the host may be empty.
	Address string
	// Live is asked for /healthz and /livez, and first for /readyz. Without it (its Do is nil) the server has no
	// probes.
	Live Check
	// Ready are the further conditions of /readyz.
	Ready []Check
	// Metrics are served at /metrics; without them there is no such path.
	Metrics prometheus.Gatherer
	// TLS makes it an HTTPS server; nil is plain HTTP.
	TLS *tls.Config
	Log *slog.Logger
}

const (
	// timeout bounds a probe; the kubelet's own is usually shorter.
	timeout = 10 * time.Second
	// maxConnections, maxHeader (in bytes) and maxReads bound what strangers can take: every pod may dial.
	maxConnections, maxHeader, maxReads = 256, 8 << 10, 32
)

// Server is the HTTP server.
type Server struct {
	Config
	http *http.Server
}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	if c.Address == "" || (c.Live.Do == nil && c.Metrics == nil) || c.Log == nil {
		return nil, errors.New("health server: a field of its Config is missing")
	}
	s := &Server{Config: c}
	mux := http.NewServeMux()
	if c.Live.Do != nil {
		mux.HandleFunc("GET /healthz", answer([]Check{c.Live}))
		mux.HandleFunc("GET /livez", answer([]Check{c.Live}))
		mux.HandleFunc("GET /readyz", answer(append([]Check{c.Live}, c.Ready...)))
	}
	if c.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxReads,
		}))
	}
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: 3 * timeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Add adds a server to what a process runs; it takes its address now.
func Add(ctx context.Context, to *process.Group, name string, c Config) error {
	server, err := New(c)
	if err != nil {
		return err
	}
	return to.AddServer(ctx, name, server)
}

// answer does all checks and says how each went, in text; 503 where one failed.
func answer(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		var lines strings.Builder
		code := http.StatusOK
		for _, check := range checks {
			if err := check.Do(ctx); err != nil {
				code = http.StatusServiceUnavailable
				fmt.Fprintf(&lines, "%s: %v\n", check.Name, err)
				continue
			}
			fmt.Fprintf(&lines, "%s: ok\n", check.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(lines.String())) // nobody is left to tell
	}
}

// Listen takes the address.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for health probes and metrics: %w", err)
	}
	listener = places.Listen(listener, maxConnections)
	if s.TLS != nil {
		listener = tls.NewListener(listener, s.TLS)
	}
	return listener, nil
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	s.Log.InfoContext(ctx, "serving health and metrics", logging.KeyAddress, listener.Addr().String())
	return process.ServeHTTP(ctx, s.http, listener)
}
