// Package pooldir makes a pool full of volumes quickly: the directories and records that the driver would have made
// one by one, in the format of docs/reference/on-disk.md, without an fsync each. A driver started on it finds a pool
// that an earlier installation left, adopts it and recovers.
package pooldir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/btrfs"
)

// Bytes is the size of each volume: the least that btrfs enforces, so that a large pool fits on a small disk.
const Bytes = 128 << 10

// Pool is what to make.
type Pool struct {
	// Path is the pool's directory, where none may be yet, and Name its name.
	Path, Name string
	Volumes    int
	// Counted makes each volume a subvolume that simple quota limits; the path must be on btrfs.
	Counted bool
}

// quotaID is the n-th volume's ID in the filesystem's quota. The driver draws them at random from 2^47, so that those
// of neighbours lie far apart; these do too, and each is different because the factor is odd.
func quotaID(n int) uint64 { return 1<<46 | uint64(n)*0x9E3779B97F4A7C15%(1<<46) }

// format is the version of the marker and of records.
const format = 2

// marker is csi/.hpp/pool.json.
type marker struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`

	EnforcedBy  string `json:"enforcedBy,omitempty"`
	Enforcement string `json:"enforcement,omitempty"`
}

// record is csi/.hpp/volumes/<id>.json, as far as these volumes need it.
type record struct {
	Version  int       `json:"version"`
	ID       string    `json:"id"`
	Pool     string    `json:"pool"`
	Bytes    int64     `json:"bytes"`
	Backend  string    `json:"backend"`
	QuotaID  uint64    `json:"quotaID,omitempty"`
	Mode     uint32    `json:"mode"`
	OnDelete string    `json:"onDelete"`
	Created  time.Time `json:"created"`
}

// VolumeID is the id of the n-th volume of a pre-made pool. It is as long as the ids of Kubernetes.
func VolumeID(n int) string { return fmt.Sprintf("pvc-00000000-0000-4000-8000-%012d", n) }

// Data is the directory of a volume in the pool at path.
func Data(path, id string) string { return filepath.Join(path, "csi", id) }

// Make makes a pool and syncs its filesystem.
func Make(p Pool) error {
	csi := filepath.Join(p.Path, "csi")
	for _, dir := range []string{"volumes", "staging", "trash"} {
		if err := os.MkdirAll(filepath.Join(csi, ".hpp", dir), 0o700); err != nil {
			return fmt.Errorf("lay out the pool: %w", err)
		}
	}
	if err := os.Chmod(csi, 0o700); err != nil {
		return fmt.Errorf("close the pool to others: %w", err)
	}
	dir, err := os.Open(csi)
	if err != nil {
		return fmt.Errorf("open the pool: %w", err)
	}
	defer func() { _ = dir.Close() }()
	m := marker{
		Version: format, ID: "perf-" + p.Name + "-" + strconv.FormatInt(time.Now().UnixNano(), 36),
		Created: time.Now().UTC(),
	}
	if p.Counted {
		m.EnforcedBy, m.Enforcement = "btrfs", "strict"
		if err := btrfs.EnableSimpleQuota(dir); err != nil {
			return err
		}
	}
	if err := fill(dir, p); err != nil {
		return err
	}
	if err := write(filepath.Join(csi, ".hpp", "pool.json"), m); err != nil {
		return err
	}
	return Sync(p.Path)
}

// fill makes the volumes, two at a time: more do not help on one directory.
func fill(csi *os.File, p Pool) error {
	const workers = 2
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := w; n < p.Volumes && errs[w] == nil; n += workers {
				errs[w] = makeVolume(csi, p, n)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func makeVolume(csi *os.File, p Pool, n int) error {
	r := record{
		Version: format, ID: VolumeID(n), Pool: p.Name, Bytes: Bytes, Backend: "plain", Mode: 0o777, OnDelete: "trash",
		Created: time.Now().UTC(),
	}
	if p.Counted {
		r.Backend, r.QuotaID = "btrfs", quotaID(n)
		if err := btrfs.Subvolume(csi, r.ID, r.QuotaID, Bytes); err != nil {
			return err
		}
	} else if err := mkdir(filepath.Join(csi.Name(), r.ID)); err != nil {
		return err
	}
	return write(filepath.Join(csi.Name(), ".hpp", "volumes", r.ID+".json"), r)
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return fmt.Errorf("make a volume: %w", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return fmt.Errorf("open a volume to all: %w", err)
	}
	return nil
}

func write(file string, content any) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write a file of the pool: %w", err)
	}
	return nil
}

// Fill puts so many files of a size in bytes into a directory, a thousand to a folder, and syncs its filesystem: what
// is in a volume has usually been there for a while.
func Fill(dir string, files int, bytes int64) error {
	const perFolder = 1000
	content := rand.NewChaCha8([32]byte{}) // no hole, and nothing that compresses
	for n := range files {
		folder := filepath.Join(dir, strconv.Itoa(n/perFolder))
		if n%perFolder == 0 {
			if err := os.Mkdir(folder, 0o777); err != nil {
				return fmt.Errorf("fill a volume: %w", err)
			}
		}
		f, err := os.Create(filepath.Join(folder, strconv.Itoa(n%perFolder)))
		if err != nil {
			return fmt.Errorf("fill a volume: %w", err)
		}
		_, err = io.CopyN(f, content, bytes)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("fill a volume: %w", err)
		}
	}
	return Sync(dir)
}

// Sync writes out what is dirty on the filesystem of path, so that nobody else's fsync pays for it.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync a filesystem: %w", err)
	}
	err = unix.Syncfs(int(f.Fd()))
	return errors.Join(err, f.Close())
}
