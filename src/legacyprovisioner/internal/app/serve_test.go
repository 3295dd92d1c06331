package app

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
)

// TestLogsAreJSON, those of the library included. It comes last: a request that the library's informers may still make
// reads the global scheme, which every new provisioner writes.
func TestLogsAreJSON(t *testing.T) {
	log := &loggingtest.Log{}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // an API that does not answer
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: " +
		"u}}]\nclusters: [{name: c, cluster: {server: " + server.URL + "}}]\nusers: [{name: u}]\n"
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--kubeconfig=" + kubeconfig, "--http-address="},
		environment(map[string]string{"PV_DIR": t.TempDir()}), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(ctx, o, log); err != nil {
		t.Error(err)
	}
	decoder := json.NewDecoder(strings.NewReader(log.String())) // the library's goroutines may still log
	records := 0
	for decoder.More() {
		var record struct{ Msg string }
		if err := decoder.Decode(&record); err != nil {
			t.Fatal(err)
		}
		records++
	}
	if records < 2 {
		t.Errorf("%d records, want at least start and end", records)
	}
}
