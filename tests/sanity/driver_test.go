package sanity_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// waitTimeout is for things that take milliseconds unless they never come, but for what an NFS client remembers of a
// directory: up to a minute (acdirmax of nfs(5)).
const waitTimeout = 2 * time.Minute

// directory stands for a pool that is a plain directory on the machine's own disk.
const directory = "directory"

// instance is one running driver with one pool.
type instance struct {
	*process.Process
	filesystem string
	node       string
	socket     string
	kubelet    string // its kubelet directory, which targets must lie in
	csi        string // the pool's csi/
}

// start runs the driver on a pool that lies on filesystem, and stops it when
// the test ends.
func start(t *testing.T, binary, filesystem string) *instance {
	t.Helper()
	return startNode(t, binary, filesystem, "sanity")
}

// startNode is start of the driver of one of several nodes.
func startNode(t *testing.T, binary, filesystem, node string) *instance {
	t.Helper()
	dir := t.TempDir()
	pool := filepath.Join(dir, "pool")
	mountPool(t, filesystem, pool, filepath.Join(dir, "disk"))
	d := &instance{
		filesystem: filesystem,
		node:       node,
		socket:     filepath.Join(dir, "csi.sock"),
		kubelet:    filepath.Join(dir, "kubelet"),
		csi:        filepath.Join(pool, "csi"),
	}
	for _, sub := range []string{"kubelet", "state"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("storagePools:\n- name: sanity\n  path: %s\n  requireMount: %t\n", pool,
		filesystem != directory)
	if requires(filesystem) {
		text += "  quota: required\n"
	}
	if shared(filesystem) {
		text += "  scope: shared\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Process = process.Run(t, binary, nil,
		"--standalone", "--registration=false", "--node-name="+node, "--http-address=", "--log-format=text",
		"--endpoint=unix://"+d.socket, "--config="+config, "--host-root=/",
		"--state-dir="+filepath.Join(dir, "state"), "--kubelet-dir="+d.kubelet)
	t.Cleanup(func() {
		d.Stop(t)
		if err := d.Err(); err != nil {
			t.Errorf("the driver on %s did not end well after SIGTERM: %v", filesystem, err)
		}
		if t.Failed() {
			d.keepLog(t)
		}
	})
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, waitTimeout, true,
		func(ctx context.Context) (bool, error) {
			conn, refused := new(net.Dialer).DialContext(ctx, "unix", d.socket) // its file is there before it listens
			if refused == nil {
				return true, conn.Close()
			}
			return false, d.Running()
		})
	if err != nil {
		t.Fatalf("the driver on %s does not serve at %s: %v\n%s", filesystem, d.socket, err, d.Log())
	}
	return d
}

// leftovers lists what a pool holds besides the driver's own directories.
func (d *instance) leftovers() ([]string, error) {
	var left []string
	subs := []string{".", ".hpp/volumes", ".hpp/staging", ".hpp/trash"}
	if shared(d.filesystem) { // each node has its own
		subs = []string{".", ".hpp/volumes", ".hpp/staging/" + d.node, ".hpp/trash/" + d.node}
	}
	for _, sub := range subs {
		entries, err := os.ReadDir(filepath.Join(d.csi, sub))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != ".hpp" && e.Name() != ".spare" {
				left = append(left, filepath.Join(sub, e.Name()))
			}
		}
	}
	return left, nil
}
