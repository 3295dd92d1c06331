package app_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
)

// TestMetricsPage: what the driver of a node exports is what docs/reference/metrics.md lists, no more and no
// less. One pool is there, one never was: between them they have every metric of a pool.
func TestMetricsPage(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: local, path: $POOL}, {name: tape, path: $POOL-tape, requireMount: true}]")
	controller, _ := m.start(t)
	if _, err := controller.GetCapacity(t.Context(), &pb.GetCapacityRequest{
		Parameters: map[string]string{"storagePool": "local"},
	}); err != nil {
		t.Fatal(err)
	}
	body := ""
	for range 300 { // until the watcher has looked at both
		if _, body = m.get(t, "/metrics"); strings.Contains(body, `hpp_pool_unused{pool="tape"} 1`) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := docs.CheckMetrics(docs.Exposed(body), "A node", "A node and the controller"); err != nil {
		t.Error(err)
	}
}
