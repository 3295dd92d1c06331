package pool

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const (
	memoryDir     = "pools"
	markerVersion = 1
)

// marker is a pool's identity on its own disk (csi/.hpp/pool.json).
type marker struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	FSID    string    `json:"filesystemID,omitempty"` // statfs(2) f_fsid; for a person, it may change at a reboot
	Created time.Time `json:"created"`
	// Backend is what made the pool's volumes last, and FirstNumber the first of the pool's range of numbers in the filesystem's quota.
	Backend     string             `json:"backend,omitempty"`
	Enforcement volume.Enforcement `json:"enforcement,omitempty"`
	FirstNumber uint32             `json:"firstNumber,omitempty"`
}

// memory is what the node remembers of a pool in the state directory (pools/<name>.json).
type memory struct {
	// ID is the marker's; "" after `pool forget`, until the next adoption.
	ID   string `json:"id"`
	Path string `json:"path"`
	// Forgotten lets the next adoption go ahead although PersistentVolumes name directories that are missing.
	Forgotten bool `json:"forgotten,omitempty"`
}

func newMarker(fsid string, now time.Time) marker {
	return marker{Version: markerVersion, ID: rand.Text(), FSID: fsid, Created: now.UTC()}
}

// readMarker gives the marker of an open pool, nil where there is none.
func readMarker(disk poolfs.FS) (*marker, error) {
	data, err := disk.ReadFile(poolfs.MarkerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m marker
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if m.Version != markerVersion || m.ID == "" {
		return nil, fmt.Errorf("version %d with id %q is not known to this driver, which reads version %d", m.Version, m.ID, markerVersion)
	}
	return &m, nil
}

// writeMarker makes the driver's directories and, last, the marker. What an interrupted attempt left is used.
func writeMarker(disk poolfs.FS, m marker) error {
	if err := ensureLayout(disk); err != nil {
		return err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the pool's marker: %w", err)
	}
	if err := poolfs.CreateFile(disk, poolfs.MarkerFile, append(data, '\n')); err != nil {
		return fmt.Errorf("mark the pool: %w", err)
	}
	return nil
}

// updateMarker writes what changed in a marker whose identity stays.
func updateMarker(disk poolfs.FS, m marker) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the pool's marker: %w", err)
	}
	if err := poolfs.ReplaceFile(disk, poolfs.MarkerFile, append(data, '\n')); err != nil {
		return fmt.Errorf("note the backend in the pool's marker: %w", err)
	}
	return nil
}

// syncMarker makes a marker durable that was found as it should be.
func syncMarker(disk poolfs.FS) error {
	if err := disk.Sync(poolfs.MetaDir); err != nil {
		return fmt.Errorf("make the pool's marker durable: %w", err)
	}
	return nil
}

// ensureLayout makes the driver's directories, those that are missing, and closes csi/ to everyone but root: volumes may be
// world-writable inside.
func ensureLayout(disk poolfs.FS) error {
	info, err := disk.Stat(".")
	if err != nil {
		return fmt.Errorf("look at csi/: %w", err)
	}
	if info.Mode.Perm() != 0o700 { // not without need: a filesystem that turned read-only can still be read
		if err := disk.Chmod(".", 0o700); err != nil {
			return fmt.Errorf("close csi/ to other users: %w", err)
		}
	}
	for _, dir := range []string{poolfs.MetaDir, poolfs.VolumesDir, poolfs.StagingDir, poolfs.TrashDir} {
		if err := disk.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make csi/%s: %w", dir, err)
		}
	}
	// Not for what was just made alone: a driver that was killed in the last step of a delete is asked again, finds nothing and says that it is
	// done. On btrfs the move out of csi/ is on the disk only with this (volume.Manager.Delete); elsewhere it was before the record moved.
	for _, dir := range []string{".", poolfs.MetaDir} {
		if err := disk.Sync(dir); err != nil {
			return fmt.Errorf("make csi/%s durable: %w", dir, err)
		}
	}
	return trash.EnsureSpare(disk)
}

// state keeps the node's memory of pools in the state directory.
type state struct{ dir poolfs.FS }

func newState(dir poolfs.FS) (state, error) {
	err := dir.Mkdir(memoryDir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return state{}, fmt.Errorf("make %s in the state directory: %w", memoryDir, err)
	}
	return state{dir: dir}, dir.Sync(".")
}

// all gives what is remembered, by pool name.
func (s state) all() (map[string]memory, error) {
	entries, err := s.dir.ReadDir(memoryDir)
	if err != nil {
		return nil, fmt.Errorf("list the pools that this node remembers: %w", err)
	}
	known := map[string]memory{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, ".json")
		if !ok {
			continue
		}
		data, err := s.dir.ReadFile(path.Join(memoryDir, e.Name))
		if err != nil {
			return nil, fmt.Errorf("read what this node remembers of pool %s: %w", name, err)
		}
		var m memory
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, fmt.Errorf("state directory: %s/%s is damaged: %w; remove it once the pool's right filesystem is mounted",
				memoryDir, e.Name, err)
		}
		known[name] = m
	}
	return known, nil
}

func (s state) put(name string, m memory) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what to remember of pool %s: %w", name, err)
	}
	if err := poolfs.ReplaceFile(s.dir, path.Join(memoryDir, name+".json"), append(data, '\n')); err != nil {
		return fmt.Errorf("remember pool %s: %w", name, err)
	}
	return nil
}

func (s state) remove(name string) error {
	if err := s.dir.Remove(path.Join(memoryDir, name+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget pool %s: %w", name, err)
	}
	return s.dir.Sync(memoryDir)
}
