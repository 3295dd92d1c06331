// Package workdisk gives the directories to measure on: one on a disk of this machine, and
// filesystems in files of their own.
package workdisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Disk is a directory to measure on.
type Disk struct {
	// Name is what reports call it: "host", "loop-ext4", "loop-xfs", "loop-btrfs", "loop-btrfs-plain".
	Name string
	// Path is an empty directory, to be used and removed through Close.
	Path string
	// FSType is the filesystem's name.
	FSType string
	// Counted says that volumes are to be held to their size, which the filesystem can do.
	Counted bool

	close func() error
}

// Close removes the directory, or unmounts the filesystem and removes its file.
func (d Disk) Close() error { return d.close() }

// Host is a new directory below dir.
func Host(ctx context.Context, dir string) (Disk, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Disk{}, fmt.Errorf("make the directory to measure in (flag -dir): %w", err)
	}
	path, err := os.MkdirTemp(dir, "hpp-perf-")
	if err != nil {
		return Disk{}, fmt.Errorf("make the directory to measure in (flag -dir): %w", err)
	}
	name, err := run(ctx, "stat", "--file-system", "--format=%T", path)
	if err != nil {
		return Disk{}, errors.Join(err, os.RemoveAll(path))
	}
	if name == "ext2/ext3" { // one magic number for three filesystems
		name = "ext4"
	}
	return Disk{Name: "host", Path: path, FSType: name, close: func() error { return os.RemoveAll(path) }}, nil
}

// ErrUnavailable says that this machine cannot have such a disk; the message says what is missing.
var ErrUnavailable = errors.New("not measured")

// size is that of a filesystem in a file, in bytes; the file takes only what is written.
const size = 16 << 30

// Loop makes a filesystem in a file below dir and mounts it. ErrUnavailable without root or the filesystem's mkfs.
func Loop(ctx context.Context, dir, fsType string) (d Disk, err error) {
	mkfs, err := exec.LookPath("mkfs." + fsType)
	if err != nil {
		return Disk{}, fmt.Errorf("%w: loop-%s: mkfs.%s is not installed", ErrUnavailable, fsType, fsType)
	}
	if os.Geteuid() != 0 {
		return Disk{}, fmt.Errorf("%w: loop-%s: mounting needs root", ErrUnavailable, fsType)
	}
	work, err := os.MkdirTemp(dir, "hpp-perf-"+fsType+"-")
	if err != nil {
		return Disk{}, fmt.Errorf("make the directory for a filesystem: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	image, mount := filepath.Join(work, "image"), filepath.Join(work, "mount")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size),
		os.Mkdir(mount, 0o755)); err != nil {
		return Disk{}, fmt.Errorf("make the file for a filesystem: %w", err)
	}
	args := []string{"-q", image}
	if fsType == "ext4" {
		// Initialised at once: the kernel would go on with it in the background while we measure.
		args = []string{"-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-N", "3000000", image}
	}
	if _, err := run(ctx, mkfs, args...); err != nil {
		return Disk{}, err
	}
	if _, err := run(ctx, "mount", "-o", "loop", image, mount); err != nil {
		return Disk{}, err
	}
	return Disk{Name: "loop-" + fsType, Path: mount, FSType: fsType, close: func() error {
		return errors.Join(unmount(mount), os.RemoveAll(work))
	}}, nil
}

// unmount waits for what still uses the filesystem. It must also work when the run was
// interrupted, hence a context of its own.
func unmount(mount string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		_, err := run(ctx, "umount", mount)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// run gives what a command prints.
func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
