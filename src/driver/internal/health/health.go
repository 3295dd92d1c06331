// Package health answers over HTTP whether the driver lives (/healthz), whether it is ready (/readyz), and with its
// metrics (/metrics).
package health

import (
	"context"
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
)

// Check is one condition of being ready.
type Check struct {
	Name string
	Do   func(ctx context.Context) error
}

// Config is what a server is made of; Ready may be empty, everything else is required.
type Config struct {
	// Address is host:port, the host may be empty.
	Address string
	// Live asks the driver through its own socket, so that a server that accepts but does not answer is found out.
	Live func(ctx context.Context) error
	// Ready are the further conditions of /readyz.
	Ready   []Check
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// timeout bounds a probe; the kubelet's own is usually shorter.
const timeout = 10 * time.Second

// Server is the HTTP server.
type Server struct {
	Config
	http *http.Server
}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	if c.Address == "" || c.Live == nil || c.Metrics == nil || c.Log == nil {
		return nil, errors.New("health server: a field of its Config is missing")
	}
	s := &Server{Config: c}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer([]Check{{"driver", c.Live}}))
	mux.HandleFunc("GET /readyz", answer(append([]Check{{"driver", c.Live}}, c.Ready...)))
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: 3 * timeout, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
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
	return listener, nil
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	s.Log.InfoContext(ctx, "serving health and metrics", logging.KeyAddress, listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("serve health and metrics on %s: %w", s.Address, err)
	case <-ctx.Done():
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.http.Shutdown(brief) != nil {
		_ = s.http.Close() // what hangs is cut off
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics on %s: %w", s.Address, err)
	}
	return nil
}
