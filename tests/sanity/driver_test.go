package sanity_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience is for things that take milliseconds unless they never come, but for what an NFS client remembers of a
// directory: up to a minute (acdirmax of nfs(5)).
const patience = 2 * time.Minute

// directory stands for a pool that is a plain directory on the machine's own disk.
const directory = "directory"

// instance is one running driver with one pool.
type instance struct {
	filesystem string
	node       string
	socket     string
	kubelet    string // its kubelet directory, which targets must lie in
	csi        string // the pool's csi/
	log        string
	process    *exec.Cmd
	exited     chan error
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
		log:        filepath.Join(dir, "driver.log"),
		exited:     make(chan error, 1),
	}
	for _, sub := range []string{"kubelet", "state"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("storagePools:\n- name: sanity\n  path: %s\n  requireMount: %t\n", pool, filesystem != directory)
	if requires(filesystem) {
		text += "  quota: required\n"
	}
	if shared(filesystem) {
		text += "  scope: shared\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// t.Context() ends before the clean-up that stops the driver in the way it is to be stopped.
	d.process = exec.CommandContext(context.WithoutCancel(t.Context()), binary,
		"--standalone", "--registration=false", "--node-name="+node, "--http-address=", "--log-format=text",
		"--endpoint=unix://"+d.socket, "--config="+config, "--host-root=/",
		"--state-dir="+filepath.Join(dir, "state"), "--kubelet-dir="+d.kubelet)
	d.run(t)
	return d
}

func (d *instance) run(t *testing.T) {
	t.Helper()
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	d.process.Stdout, d.process.Stderr = log, log
	if err := errors.Join(d.process.Start(), log.Close()); err != nil {
		t.Fatalf("start the driver: %v", err)
	}
	go func() { d.exited <- d.process.Wait() }()
	t.Cleanup(func() { d.stop(t) })
	d.awaitSocket(t)
}

func (d *instance) awaitSocket(t *testing.T) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(d.socket); err == nil {
			return
		}
		select {
		case err := <-d.exited:
			d.exited <- err // stop waits for it too
			t.Fatalf("the driver on %s ended before it served: %v\n%s", d.filesystem, err, d.logged(t))
		case <-timeout:
			t.Fatalf("the driver on %s does not serve at %s after %s\n%s", d.filesystem, d.socket, patience, d.logged(t))
		case <-tick.C:
		}
	}
}

// stop sends the first SIGTERM, which the driver has to obey.
func (d *instance) stop(t *testing.T) {
	t.Helper()
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("send SIGTERM to the driver on %s: %v", d.filesystem, err)
	}
	select {
	case err := <-d.exited:
		if err != nil {
			t.Errorf("the driver on %s did not end well after SIGTERM: %v", d.filesystem, err)
		}
	case <-time.After(patience):
		t.Errorf("the driver on %s has not obeyed SIGTERM after %s", d.filesystem, patience)
		if err := d.process.Process.Kill(); err != nil {
			t.Error(err)
		}
		<-d.exited
	}
	if t.Failed() {
		d.keepLog(t)
	}
}

func (d *instance) logged(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(d.log)
	if err != nil {
		t.Errorf("read the driver's log: %v", err)
	}
	return string(text)
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
