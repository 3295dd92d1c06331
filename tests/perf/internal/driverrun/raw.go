package driverrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// raw does by hand, on the same disk, what the least possible driver would have to do.
type raw struct {
	dir   string
	count int
}

func newRaw(dir string) (*raw, error) {
	for _, sub := range []string{"data", "records", "staging"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("prepare the baselines: %w", err)
		}
	}
	return &raw{dir: dir}, nil
}

// mkdir makes a directory and makes it durable.
func (r *raw) mkdir() error {
	r.count++
	if err := os.Mkdir(filepath.Join(r.dir, "data", "m"+strconv.Itoa(r.count)), 0o777); err != nil {
		return err
	}
	return fsync(filepath.Join(r.dir, "data"))
}

// create is the order of docs/reference/on-disk.md without anything else: a directory in staging, a record by temporary file and rename, the
// directory into place, and every step durable before the next. Seven fsyncs, of which a journal combines some.
func (r *raw) create() error {
	r.count++
	name := "c" + strconv.Itoa(r.count)
	staged, record := filepath.Join(r.dir, "staging", name), filepath.Join(r.dir, "records", name)
	if err := os.Mkdir(staged, 0o777); err != nil {
		return err
	}
	if err := fsync(staged, filepath.Dir(staged)); err != nil {
		return err
	}
	if err := os.WriteFile(record+".tmp", make([]byte, 400), 0o600); err != nil {
		return err
	}
	if err := fsync(record + ".tmp"); err != nil {
		return err
	}
	if err := os.Rename(record+".tmp", record); err != nil {
		return err
	}
	if err := fsync(filepath.Dir(record)); err != nil {
		return err
	}
	if err := os.Rename(staged, filepath.Join(r.dir, "data", name)); err != nil {
		return err
	}
	return fsync(filepath.Join(r.dir, "data"), filepath.Dir(staged))
}

func fsync(paths ...string) error {
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		if err := errors.Join(unix.Fsync(fd), unix.Close(fd)); err != nil {
			return fmt.Errorf("fsync %s: %w", path, err)
		}
	}
	return nil
}
