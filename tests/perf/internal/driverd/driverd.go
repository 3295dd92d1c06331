// Package driverd runs the built driver alone, without Kubernetes, and talks CSI to it.
package driverd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/procfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
)

// waitTimeout is for what takes a moment, or minutes with a pool of a million volumes, unless it never comes.
const waitTimeout = 5 * time.Minute

// Build compiles the driver as it is shipped, from the repository at root, into dir, and returns the binary's path.
func Build(ctx context.Context, root, dir string) (string, error) {
	binary := filepath.Join(dir, "driver")
	return binary, compile.Run(ctx, compile.Target{
		Dir: root, Package: "./src/driver", OS: runtime.GOOS, Arch: runtime.GOARCH, Output: binary,
	})
}

// Options are what a driver is started with.
type Options struct {
	Binary string
	// Pool is the name of its only pool, Path that pool's directory.
	Pool, Path string
	// Quota is the pool's option, "" for the default.
	Quota string
	// Work is an empty directory for socket, state and kubelet directory, short enough for a
	// socket's name (107 bytes, unix(7)).
	Work string
}

// Driver is a running driver.
type Driver struct {
	csi.ControllerClient
	csi.NodeClient
	Options

	process *exec.Cmd
	exited  chan error
	conn    *grpc.ClientConn
	started time.Time
}

// Start starts a driver and connects to it. It serves at once; whether its pool is recovered is another matter.
func Start(ctx context.Context, o Options) (*Driver, error) {
	d := &Driver{Options: o, exited: make(chan error, 1)}
	for _, dir := range []string{d.Kubelet(), d.state()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("prepare the driver's directories: %w", err)
		}
	}
	config := filepath.Join(o.Work, "config.yaml")
	text := fmt.Sprintf("storagePools:\n- name: %s\n  path: %s\n", o.Pool, o.Path)
	if o.Quota != "" {
		text += fmt.Sprintf("  quota: %s\n", o.Quota)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the driver's configuration: %w", err)
	}
	log, err := os.Create(d.log())
	if err != nil {
		return nil, fmt.Errorf("make the driver's log: %w", err)
	}
	// Not bound to ctx: Close sends SIGTERM, so that the driver ends as it does in a cluster.
	d.process = exec.Command(o.Binary, //nolint:noctx // see above
		"--standalone", "--registration=false", "--node-name=perf", "--http-address=", "--host-root=/",
		"--log-level=warn",
		"--endpoint=unix://"+d.socket(), "--config="+config, "--state-dir="+d.state(), "--kubelet-dir="+d.Kubelet())
	d.process.Stdout, d.process.Stderr = log, log
	d.started = time.Now()
	if err := errors.Join(d.process.Start(), log.Close()); err != nil {
		return nil, fmt.Errorf("start the driver: %w", err)
	}
	go func() { d.exited <- d.process.Wait() }()
	if err := d.connect(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Driver) connect(ctx context.Context) error {
	err := d.Until(ctx, "serves", func() error { // the socket's file is there before it listens
		conn, err := new(net.Dialer).DialContext(ctx, "unix", d.socket())
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+d.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the driver: %w", err)
	}
	d.conn = conn
	d.ControllerClient, d.NodeClient = csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	return nil
}

// Recovered waits until the driver knows a volume that its pool holds, and returns
// how long that took from its start.
func (d *Driver) Recovered(ctx context.Context, id string) (time.Duration, error) {
	err := d.Until(ctx, "knows "+id, func() error {
		_, err := d.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
		return err
	})
	return time.Since(d.started), err
}

// Until tries until try succeeds, the driver ends, or waitTimeout does.
func (d *Driver) Until(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case end := <-d.exited:
			d.exited <- end // Close waits for it too
			return fmt.Errorf("the driver ended before it %s: %w\n%s", what, errors.Join(end, err), d.Log())
		case <-ctx.Done():
			return fmt.Errorf("waited %s until the driver %s: %w\n%s", waitTimeout, what, err, d.Log())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Close ends the driver with the first SIGTERM, which it has to obey.
func (d *Driver) Close() error {
	var errs []error
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
	}
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		errs = append(errs, fmt.Errorf("send SIGTERM to the driver: %w", err))
	}
	select {
	case err := <-d.exited:
		if err != nil {
			errs = append(errs, fmt.Errorf("the driver did not end well: %w\n%s", err, d.Log()))
		}
	case <-time.After(30 * time.Second):
		errs = append(errs, errors.New("the driver did not obey SIGTERM for 30 s"), d.process.Process.Kill())
		errs = append(errs, <-d.exited)
	}
	return errors.Join(errs...)
}

// Kubelet is the directory that targets lie in.
func (d *Driver) Kubelet() string { return filepath.Join(d.Work, "kubelet") }

func (d *Driver) state() string  { return filepath.Join(d.Work, "state") }
func (d *Driver) socket() string { return filepath.Join(d.Work, "csi.sock") }
func (d *Driver) log() string    { return filepath.Join(d.Work, "driver.log") }

// Log is what the driver has logged, for an error.
func (d *Driver) Log() string {
	text, err := os.ReadFile(d.log())
	if err != nil {
		return err.Error()
	}
	const tail = 4000
	return string(text[max(0, len(text)-tail):])
}

// RSS is the driver's resident memory in bytes (VmRSS, proc_pid_status(5)).
func (d *Driver) RSS() (int64, error) {
	process, err := procfs.NewProc(d.process.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("read the driver's memory: %w", err)
	}
	status, err := process.NewStatus()
	return int64(status.VmRSS), err
}

// CPU is the processor time that the driver has used so far (utime and stime, proc_pid_stat(5)).
func (d *Driver) CPU() (time.Duration, error) {
	process, err := procfs.NewProc(d.process.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("read the driver's processor time: %w", err)
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}
