package app_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestMetricsPage: what the driver of a node exports is what docs/reference/metrics.md lists, no more and no
// less. One pool is there, one never was, one left the configuration: between them they have every metric of a pool.
func TestMetricsPage(t *testing.T) {
	const pools = "storagePools: [{name: local, path: $POOL}, {name: tape, path: $POOL-tape, requireMount: true}"
	m := newMachine(t, pools+", {name: old, path: $POOL-old}]")
	m.start(t)
	m.shows(t, `hpp_pool_present{pool="old"} 1`)
	if err := m.stop(t, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.configure(t, pools+"]")
	controller, _ := m.start(t)
	if _, err := controller.GetCapacity(t.Context(), &pb.GetCapacityRequest{
		Parameters: map[string]string{"storagePool": "local"},
	}); err != nil {
		t.Fatal(err)
	}
	m.shows(t, `hpp_pool_unused{pool="tape"} 1`)
	body := m.shows(t, `hpp_pool_not_configured{pool="old"} 1`)
	if err := docs.CheckMetrics(docs.Exposed(body), "A node", "A node and the controller"); err != nil {
		t.Error(err)
	}
}

// shows waits until the watcher has seen what a line of the metrics says, and gives all of them.
func (m *machine) shows(t *testing.T, line string) (body string) {
	t.Helper()
	waittest.Until(t, line, func() bool {
		response, err := http.Get("http://" + m.http + "/metrics")
		if err != nil {
			return false // it is starting
		}
		data, err := io.ReadAll(response.Body)
		body = string(data)
		return errors.Join(err, response.Body.Close()) == nil && strings.Contains(body, line)
	})
	return body
}
