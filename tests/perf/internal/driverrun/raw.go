package driverrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pooldir"
)

// raw does by hand, on the same disk, what the least possible driver would have to do.
type raw struct {
	dir string
	// volumes are what else is on the disk, baseline where that makes no difference.
	volumes int
	// counted makes subvolumes with a limit each instead of directories.
	counted bool
	// ordered filesystems keep the order of steps by themselves.
	ordered bool
	count   uint64
	made    []string // by create, not yet removed

	staging *os.File // on btrfs requests go to an open directory
}

func newRaw(dir string, volumes int, counted bool) (*raw, error) {
	for _, sub := range []string{"data", "records", "staging", "trash", "mount"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("prepare the baselines: %w", err)
		}
	}
	staging, err := os.Open(filepath.Join(dir, "staging"))
	if err != nil {
		return nil, fmt.Errorf("prepare the baselines: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(staging.Fd()), &st); err != nil {
		return nil, fmt.Errorf("see what filesystem %s is on: %w", dir, err)
	}
	const checkpoint, dryRun = 0x4004662b, 4 // EXT4_IOC_CHECKPOINT, which fails where there is no journal
	ordered := counted || st.Type == unix.XFS_SUPER_MAGIC || st.Type == unix.EXT4_SUPER_MAGIC &&
		unix.IoctlSetPointerInt(int(staging.Fd()), checkpoint, dryRun) == nil
	return &raw{dir: dir, volumes: volumes, counted: counted, ordered: ordered, staging: staging}, nil
}

// Close ends the use of the disk.
func (r *raw) Close() error { return r.staging.Close() }

// byHand is one baseline, and how often it is done in a round.
type byHand struct {
	op    string
	times int
	do    func() error
}

func (r *raw) baselines() []byHand {
	all := []byHand{{opMkdir, creates, r.mkdir}, {opByHand, creates, r.create}}
	if !r.counted {
		return all
	}
	return append(all,
		byHand{opBind, publishes, r.bind},
		byHand{opUsed, asks, func() error { _, err := btrfs.Used(r.staging, r.id()); return err }},
		byHand{opTrash, deletes, r.trash})
}

// id is that of what was made last by hand. They lie as far apart as those of volumes, which are below 2^47.
func (r *raw) id() uint64 { return 1<<47 | r.count*0x9E3779B97F4A7C15%(1<<47) }

// make makes a directory in staging. On btrfs it is renamed there: from then on an fsync of anything is a commit.
func (r *raw) make(name string) error {
	r.count++
	staged := r.path("staging", name)
	if !r.counted {
		return os.Mkdir(staged, 0o777)
	}
	if err := btrfs.Subvolume(r.staging, "new."+name, r.id(), pooldir.Bytes); err != nil {
		return err
	}
	return os.Rename(r.path("staging", "new."+name), staged)
}

func (r *raw) path(sub, name string) string { return filepath.Join(r.dir, sub, name) }

// mkdir makes a directory and makes it durable.
func (r *raw) mkdir() error {
	if err := r.make("m" + strconv.Itoa(int(r.count))); err != nil {
		return err
	}
	return fsync(r.staging.Name())
}

// create is the order of docs/development/on-disk.md without anything else: the record's content, a directory in
// staging, the record's name, the directory into place, and every step durable before the next. Six fsyncs, or two
// where the filesystem keeps the order by itself.
func (r *raw) create() error {
	name := "c" + strconv.Itoa(int(r.count))
	staged, record := r.path("staging", name), r.path("records", name)
	if err := os.WriteFile(record+".tmp", make([]byte, 400), 0o600); err != nil {
		return err
	}
	if err := fsync(record + ".tmp"); err != nil {
		return err
	}
	if err := r.make(name); err != nil {
		return err
	}
	if err := r.between(staged, filepath.Dir(staged)); err != nil {
		return err
	}
	if err := os.Rename(record+".tmp", record); err != nil {
		return err
	}
	if err := r.between(filepath.Dir(record)); err != nil {
		return err
	}
	if err := os.Rename(staged, r.path("data", name)); err != nil {
		return err
	}
	r.made = append(r.made, name)
	return r.last(filepath.Join(r.dir, "data"), filepath.Dir(staged))
}

// between makes a step durable before the next one is taken, where the filesystem might turn them round.
func (r *raw) between(paths ...string) error {
	if r.ordered {
		return nil
	}
	return fsync(paths...)
}

// last makes the last step durable: where something was moved to, and unless the filesystem keeps the order, from.
func (r *raw) last(to, from string) error {
	if r.ordered {
		return fsync(to)
	}
	return fsync(to, from)
}

// trash is the order of a delete: an entry in the trash, the data into it, then the record.
func (r *raw) trash() error {
	name := r.made[0]
	r.made = r.made[1:]
	entry := r.path("trash", name)
	if err := os.Mkdir(entry, 0o700); err != nil {
		return err
	}
	if err := r.between(filepath.Dir(entry)); err != nil {
		return err
	}
	if err := os.Rename(r.path("data", name), filepath.Join(entry, "data")); err != nil {
		return err
	}
	if err := r.between(entry, filepath.Join(r.dir, "data")); err != nil {
		return err
	}
	if err := os.Rename(r.path("records", name), filepath.Join(entry, "record")); err != nil {
		return err
	}
	return r.last(entry, filepath.Join(r.dir, "records"))
}

// bind mounts the newest directory elsewhere and unmounts it again.
func (r *raw) bind() error {
	target := filepath.Join(r.dir, "mount")
	if err := unix.Mount(r.path("data", r.made[len(r.made)-1]), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind a volume by hand: %w", err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
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
