package health_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves on a free port until the test is over.
func serve(t *testing.T, c health.Config) (address string) {
	t.Helper()
	c.Address, c.Log = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	server, err := health.New(c)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return listener.Addr().String()
}

func TestServes(t *testing.T) {
	var live, registered error
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hpp_test", Help: "7."}, func() float64 { return 7 }))
	address := serve(t, health.Config{
		Metrics: registry,
		Live:    health.Check{Name: "driver", Do: func(context.Context) error { return live }},
		Ready:   []health.Check{{Name: "registration", Do: func(context.Context) error { return registered }}},
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	for _, test := range []struct {
		path             string
		live, registered error
		code             int
		says             string
	}{
		{"/healthz", nil, errors.New("refused"), 200, "driver: ok\n"},
		{"/healthz", errors.New("no answer"), nil, 503, "driver: no answer\n"},
		{"/readyz", nil, nil, 200, "driver: ok\nregistration: ok\n"},
		{"/readyz", nil, errors.New("refused"), 503, "driver: ok\nregistration: refused\n"},
		{"/readyz", errors.New("no answer"), nil, 503, "driver: no answer\nregistration: ok\n"},
		{"/debug/pprof/", nil, nil, 404, ""},
	} {
		live, registered = test.live, test.registered
		code, body := get(test.path)
		if code != test.code || (test.says != "" && body != test.says) {
			t.Errorf("%s with %v, %v: %d %q; want %d %q", test.path, test.live, test.registered, code, body, test.code,
				test.says)
		}
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "hpp_test 7") {
		t.Errorf("/metrics: %d %s", code, body)
	}
}

// TestStrangers: who keeps many connections open loses the oldest, and everybody else is answered. Long headers are
// refused.
func TestStrangers(t *testing.T) {
	address := serve(t, health.Config{
		Live: health.Check{Name: "driver", Do: func(context.Context) error { return nil }},
	})
	dial := func(says string) net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, says); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	answer := func(conn net.Conn) string {
		got, _ := io.ReadAll(conn) // the server's end may be cut off
		line, _, _ := strings.Cut(string(got), "\r\n")
		return line
	}
	var silent []net.Conn
	for range 266 {
		silent = append(silent, dial("GET /healthz HTTP/1.1\r\n"))
	}
	const request = "GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n"
	if got := answer(dial(request + "\r\n")); got != "HTTP/1.1 200 OK" {
		t.Errorf("beside strangers: %q", got)
	}
	for _, conn := range silent[:11] {
		_, _ = io.WriteString(conn, "Host: node\r\nConnection: close\r\n\r\n") // nobody may be there
		if got := answer(conn); got != "" {
			t.Errorf("one of the oldest was told %q", got)
		}
	}
	long := request + "Long: " + strings.Repeat("a", 16<<10) + "\r\n\r\n"
	if got := answer(dial(long)); got != "HTTP/1.1 431 Request Header Fields Too Large" {
		t.Errorf("a long header: %q", got)
	}
}

func TestATakenAddressIsNamed(t *testing.T) {
	config := health.Config{
		Address: "127.0.0.1:0", Live: health.Check{Name: "driver", Do: func(context.Context) error { return nil }},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}
	first, err := health.New(config)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := first.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	config.Address = listener.Addr().String()
	second, err := health.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), config.Address) {
		t.Errorf("got %v", err)
	}
}
