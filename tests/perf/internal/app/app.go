// Package app is the command line of perf: it runs what is asked for and writes the report.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/driverd"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/driverrun"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/machine"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workdisk"
)

// Run is the whole program. What it found goes to stdout, how far it is to stderr.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	root, err := machine.Root(ctx)
	if err != nil {
		return err
	}
	s := &session{options: o, root: root, stderr: stderr}
	if s.report.Machine, err = machine.Describe(ctx, root); err != nil {
		return err
	}
	s.report.Started = time.Now().UTC().Truncate(time.Second)
	for _, part := range o.parts {
		do := map[string]func(context.Context) error{
			"driver": s.driver, "copies": s.copies, "burst": s.burst, "pods": s.pods,
		}[part]
		if err := do(ctx); err != nil {
			s.report.Notes = append(s.report.Notes, fmt.Sprintf("The part %s ended with an error: %v", part, err))
			return errors.Join(err, s.finish(stdout))
		}
	}
	if s.report.Machine.LoadAfter, err = machine.Load(); err != nil {
		return err
	}
	return s.finish(stdout)
}

// session is one run of the program.
type session struct {
	options
	root   string
	stderr io.Writer
	report report.Report
}

// log says what is being done.
func (s *session) log(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...) // nobody left to tell
}

// folder is where the report goes.
func (s *session) folder() string {
	parent := s.out
	if parent == "" {
		parent = filepath.Join(s.root, "artifacts", "perf")
	}
	return filepath.Join(parent, s.report.Started.Format("20060102T150405Z"))
}

// quiet waits until something can be measured that needs so many cores while nothing happens, or notes that there was
// other work.
func (s *session) quiet(ctx context.Context, what string, idle float64) error {
	note, err := machine.Quiet(ctx, what, idle+s.busy)
	if note != "" {
		s.report.Notes = append(s.report.Notes, note)
	}
	return err
}

// measurement is what is done on every disk there can be.
type measurement struct {
	run func(context.Context, driverrun.Options) (driverrun.Result, error)
	// volumes are in the pools beforehand, subvolumes in those on btrfs.
	volumes, subvolumes []int
}

// driver measures the driver alone.
func (s *session) driver(ctx context.Context) error {
	return s.onDisks(ctx, measurement{driverrun.Run, s.volumes, s.subvolumes})
}

// copies measures its snapshots, restores and clones, in a pool with few other volumes.
func (s *session) copies(ctx context.Context) error {
	return s.onDisks(ctx, measurement{driverrun.Copies, s.volumes[:1], s.subvolumes[:1]})
}

func (s *session) onDisks(ctx context.Context, m measurement) error {
	dir, err := os.MkdirTemp("", "hpp-perf-bin-")
	if err != nil {
		return fmt.Errorf("make a directory for the driver's binary: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s.log("build the driver")
	binary, err := driverd.Build(ctx, s.root, dir)
	if err != nil {
		return err
	}
	for _, name := range s.disks {
		if err := s.onDisk(ctx, binary, name, m); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) onDisk(ctx context.Context, binary, name string, m measurement) (err error) {
	volumes, filesystems := m.volumes, 1
	if name == "btrfs" { // how many subvolumes and limits a filesystem has is what matters
		volumes, filesystems = m.subvolumes, len(m.subvolumes)
	}
	disks, err := openDisks(ctx, s.dir, name, filesystems)
	defer func() { err = errors.Join(err, closeAll(disks)) }()
	if errors.Is(err, workdisk.ErrUnavailable) {
		s.log("%v", err)
		s.report.Notes = append(s.report.Notes, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	o := driverrun.Options{
		Binary: binary, Disks: disks, Volumes: volumes, Rounds: s.rounds, Files: s.files,
		Idle: name == "host", Log: s.log,
		Quiet: func(ctx context.Context, what string) error { return s.quiet(ctx, what, 0) },
	}
	result, err := m.run(ctx, o)
	if err != nil {
		return err
	}
	s.report.Sections = append(s.report.Sections, result.Section)
	s.report.Bench = append(s.report.Bench, result.Bench...)
	return nil
}

// openDisks makes what is to be measured on; what was made before an error is to be closed too.
func openDisks(ctx context.Context, dir, name string, n int) ([]workdisk.Disk, error) {
	var disks []workdisk.Disk
	for range n {
		disk, err := openDisk(ctx, dir, name)
		if err != nil {
			return disks, err
		}
		disks = append(disks, disk)
	}
	return disks, nil
}

func openDisk(ctx context.Context, dir, name string) (workdisk.Disk, error) {
	if name == "host" {
		return workdisk.Host(ctx, dir)
	}
	fsType, plain := strings.CutSuffix(name, "-plain")
	disk, err := workdisk.Loop(ctx, dir, fsType)
	disk.Name, disk.Counted = "loop-"+name, fsType == "btrfs" && !plain
	return disk, err
}

func closeAll(disks []workdisk.Disk) error {
	var errs []error
	for _, d := range disks {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// finish writes the report and prints it.
func (s *session) finish(stdout io.Writer) error {
	if err := Write(s.folder(), s.report); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "%s\nWritten to %s\n", s.report.Markdown(), s.folder())
	return err
}

// Write puts a report, and its rounds for benchstat, into a new folder.
func Write(dir string, r report.Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the report's folder (flag -out): %w", err)
	}
	files := map[string]string{"report.md": r.Markdown()}
	if len(r.Bench) > 0 {
		files["bench.txt"] = r.BenchText()
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
