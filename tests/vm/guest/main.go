// Command guest is the first process of a VM of tests/vm: it loads modules, mounts what every program expects, runs one
// command with the second serial port as its terminal, and says how that ended. It never returns: the kernel
// would panic.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// plan is what tests/vm wants done; it writes /plan.json into the initramfs.
type plan struct {
	Modules []string // paths, in the order of loading
	Command []string
	Ended   string // what the line with the exit status starts with
}

func main() {
	line, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err) // the console
	}
	if line != nil {
		_ = unix.IoctlSetInt(int(line.Fd()), unix.TCSBRK, 1) // tcdrain(3)
	}
	unix.Sync()
	err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Fprintln(os.Stderr, "guest: power off:", err)
}

// run does everything but the end; it returns the line to the host once there is one.
func run() (*os.File, error) {
	for _, m := range []struct{ kind, target string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	data, err := os.ReadFile("/plan.json")
	if err != nil {
		return nil, err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("/plan.json: %w", err)
	}
	for _, module := range p.Modules {
		if err := load(module); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(nameDisks(), loopback()); err != nil {
		return nil, err
	}
	line, err := openLine("/dev/ttyS1")
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(line, "\n%s %s\n", p.Ended, command(p.Command, line))
	return line, err
}

// load loads a module, also a compressed one; the kernel must be able to unpack it.
func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const compressed = 4 // MODULE_INIT_COMPRESSED_FILE of include/uapi/linux/module.h
	flags := 0
	if filepath.Ext(path) != ".ko" {
		flags = compressed
	}
	err = unix.FinitModule(int(f.Fd()), "", flags)
	// ENODEV: one for a processor that this is not; modprobe lists those too.
	if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// nameDisks makes /dev/disk/<serial> for each disk that has one.
func nameDisks() error {
	if err := os.MkdirAll("/dev/disk", 0o755); err != nil {
		return err
	}
	serials, err := filepath.Glob("/sys/block/*/serial")
	if err != nil {
		return err
	}
	for _, file := range serials {
		serial, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.Base(filepath.Dir(file))
		if err := os.Symlink("/dev/"+name, "/dev/disk/"+strings.TrimSpace(string(serial))); err != nil {
			return err
		}
	}
	return nil
}

// loopback brings 127.0.0.1 up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// openLine opens a serial port so that bytes go through it as they are.
func openLine(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	state.Iflag, state.Oflag, state.Lflag = 0, 0, 0
	state.Cflag = unix.B115200 | unix.CS8 | unix.CREAD | unix.CLOCAL
	state.Cc[unix.VMIN], state.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, state); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// command runs it and says how it ended: an exit status, or a reason.
func command(arguments []string, line *os.File) string {
	cmd := exec.CommandContext(context.Background(), arguments[0], arguments[1:]...)
	cmd.Env = []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp"}
	cmd.Dir = "/tmp"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, line
	err := cmd.Run()
	switch {
	case err == nil:
		return "0"
	case cmd.ProcessState != nil && cmd.ProcessState.Exited():
		return fmt.Sprint(cmd.ProcessState.ExitCode())
	default:
		return err.Error()
	}
}
