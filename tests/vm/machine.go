package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// ended is what the last line of a VM that was not killed starts with.
const ended = "hpp-vm-ended:"

// Config says what to boot.
type Config struct {
	Kernel  Kernel
	Modules []string          // names, with what they need
	Disks   map[string]string // the VM's /dev/disk/<name> → raw image of the host
	Files   map[string]string // path in the VM → file of the host
	Command []string          // program and arguments, in the VM
	Dir     string            // for the initramfs and the console's log; exists
}

// Machine is a running VM. Its command's output is read by lines, and its input written.
type Machine struct {
	Input   io.Writer
	lines   *bufio.Scanner
	cmd     *exec.Cmd
	console string
	status  string // after ended; "" for none
}

// Start boots a VM; it dies with ctx.
func Start(ctx context.Context, c Config) (*Machine, error) {
	if err := need("qemu-system-x86_64"); err != nil {
		return nil, err
	}
	initramfs := filepath.Join(c.Dir, "initramfs")
	if err := c.pack(ctx, initramfs); err != nil {
		return nil, fmt.Errorf("make the VM's initramfs: %w", err)
	}
	m := &Machine{console: filepath.Join(c.Dir, "console")}
	arguments := []string{
		// Not KVM, also where /dev/kvm is there: inside another VM it has stopped with a failed assertion, or never
		// booted. One thread for both processors: with one each, a kernel that patches its own code now and then dies
		// of it (int3 at boot).
		"-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "1024",
		"-display", "none", "-monitor", "none", "-no-reboot", "-nodefaults",
		"-serial", "file:" + m.console, "-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line",
		"-kernel", c.Kernel.Image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on no_timer_check",
	}
	for name, image := range c.Disks {
		arguments = append(arguments, "-drive", "if=none,format=raw,id="+name+",file="+image,
			"-device", "virtio-blk-pci,drive="+name+",serial="+name)
	}
	m.cmd = exec.CommandContext(ctx, "qemu-system-x86_64", arguments...)
	m.cmd.Stderr = new(bytes.Buffer)
	input, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.Input, m.lines = input, bufio.NewScanner(output)
	m.lines.Buffer(nil, 1<<20)
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the VM: %w", err)
	}
	return m, nil
}

// pack writes the initramfs.
func (c Config) pack(ctx context.Context, path string) error {
	modules, err := c.Kernel.Modules(ctx, append([]string{"virtio_pci", "virtio_blk"}, c.Modules...)...)
	if err != nil {
		return err
	}
	guest := filepath.Join(c.Dir, "guest")
	if err := buildGuest(ctx, guest); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	buffered := bufio.NewWriterSize(out, 1<<20)
	a := &archive{out: buffered}
	plan := map[string]any{"Command": c.Command, "Ended": ended, "Modules": modules}
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	err = errors.Join(a.addFile("init", guest), a.add("plan.json", 0o644, int64(len(data)), bytes.NewReader(data)))
	for _, module := range modules {
		err = errors.Join(err, a.addFile(module, module))
	}
	for name, file := range c.Files {
		err = errors.Join(err, a.addFile(name, file))
	}
	return errors.Join(err, a.close(), buffered.Flush(), out.Close())
}

// Next returns the next line of the command's output; ok is false when the VM has ended.
func (m *Machine) Next() (line string, ok bool) {
	if m.status != "" || !m.lines.Scan() {
		return "", false
	}
	line = strings.TrimRight(m.lines.Text(), "\r")
	if status, is := strings.CutPrefix(line, ended); is {
		m.status = strings.TrimSpace(status)
		return "", false
	}
	return line, true
}

// Wait waits for a VM whose lines have been read to the end. The error is the command's, or the VM's with what its
// kernel said last.
func (m *Machine) Wait() error {
	m.drain()
	err := m.cmd.Wait()
	switch {
	case m.status == "0":
		return nil
	case m.status != "":
		if status, bad := strconv.Atoi(m.status); bad == nil {
			return fmt.Errorf("the command ended with status %d", status)
		}
		return fmt.Errorf("the command in the VM: %s", m.status)
	default:
		err = errors.Join(errors.New("its command did not end"), err)
		return fmt.Errorf("the VM died: %w\n%s\n%s", err, m.cmd.Stderr, m.Console())
	}
}

// drain reads what is left, so that qemu is not held up.
func (m *Machine) drain() {
	for m.lines.Scan() {
		continue
	}
}

// Kill cuts the VM's power.
func (m *Machine) Kill() error {
	err := m.cmd.Process.Kill()
	m.drain()
	_ = m.cmd.Wait() // it was killed
	return err
}

// Console is the end of what the VM's kernel said.
func (m *Machine) Console() string {
	const most = 8 << 10
	data, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-most):])
}
