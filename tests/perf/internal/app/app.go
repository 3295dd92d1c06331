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
	if o.against != "" {
		return compareFiles(o.compare, o.against, stdout)
	}
	root, err := machine.Root(ctx)
	if err != nil {
		return err
	}
	s := &session{options: o, root: root, stderr: stderr}
	if s.report.Machine, err = machine.Describe(ctx, root); err != nil {
		return err
	}
	s.report.Version, s.report.Started = report.Version, time.Now().UTC().Truncate(time.Second)
	for _, part := range o.parts {
		do := map[string]func(context.Context) error{"driver": s.driver, "burst": s.burst}[part]
		if err := do(ctx); err != nil {
			return err
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

// driver measures the driver alone on every disk there can be.
func (s *session) driver(ctx context.Context) error {
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
		if err := s.onDisk(ctx, binary, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) onDisk(ctx context.Context, binary, name string) (err error) {
	volumes, copies := s.volumes, 1
	if name == "btrfs" { // how many subvolumes and limits a filesystem has is what matters
		volumes, copies = s.subvolumes, len(s.subvolumes)
	}
	disks, err := openDisks(ctx, s.dir, name, copies)
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
		Binary: binary, Disks: disks, Volumes: volumes, Rounds: s.rounds, Files: []int{100_000},
		Idle: name == "host", Log: s.log,
	}
	if s.million && name == "host" {
		o.Files = append(o.Files, 1_000_000)
	}
	result, err := driverrun.Run(ctx, o)
	if err != nil {
		return err
	}
	s.report.Sections = append(s.report.Sections, result.Section)
	s.report.Bench = append(s.report.Bench, result.Bench...)
	s.report.Panels = append(s.report.Panels, result.Panel)
	return nil
}

// openDisks makes what is to be measured on; what was made before an error is to be closed too.
func openDisks(ctx context.Context, dir, name string, copies int) ([]workdisk.Disk, error) {
	var disks []workdisk.Disk
	for range copies {
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

// finish writes the report and prints the part that people want to see.
func (s *session) finish(stdout io.Writer) error {
	if len(s.report.Bench) > 0 {
		s.report.Notes = append(s.report.Notes,
			"bench.txt holds every round; two runs compare with `benchstat old/bench.txt new/bench.txt`.")
	}
	parent := s.out
	if parent == "" {
		parent = filepath.Join(s.root, "artifacts", "perf")
	}
	dir := filepath.Join(parent, s.report.Started.Format("20060102T150405Z"))
	if err := Write(dir, s.report); err != nil {
		return err
	}
	text := s.report.Markdown("")
	if s.compare != "" {
		older, err := read(s.compare)
		if err != nil {
			return err
		}
		text += "\n## Compared with " + s.compare + "\n\n" + report.Compare(older, s.report)
	}
	_, err := fmt.Fprintf(stdout, "%s\nWritten to %s\n", text, dir)
	return err
}

// Write puts a report and what belongs to it into a new folder.
func Write(dir string, r report.Report) error {
	data, err := r.JSON()
	if err != nil {
		return err
	}
	svg, err := r.SVG()
	if err != nil {
		return err
	}
	plot := ""
	if svg != "" {
		plot = "plot.svg"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the report's folder (flag -out): %w", err)
	}
	for name, text := range map[string]string{
		"report.json": string(data), "report.md": r.Markdown(plot), "plot.svg": svg, "bench.txt": r.BenchText(),
	} {
		if name == "plot.svg" && svg == "" || name == "bench.txt" && len(r.Bench) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

func read(file string) (report.Report, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return report.Report{}, fmt.Errorf("read an earlier report: %w", err)
	}
	r, err := report.Parse(data)
	if err != nil {
		return report.Report{}, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func compareFiles(older, newer string, stdout io.Writer) error {
	was, err := read(older)
	if err != nil {
		return err
	}
	is, err := read(newer)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, report.Compare(was, is))
	return err
}
