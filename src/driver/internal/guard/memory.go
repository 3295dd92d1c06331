package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

const memoryDir = "pools"

// Memory is what the node remembers of a pool in the state directory (pools/<name>.json).
type Memory struct {
	// ID is the marker's; "" after `pool forget`, until the next adoption.
	ID   string `json:"id"`
	Path string `json:"path"`
	// Forgotten lets the next adoption go ahead although PersistentVolumes name directories that are missing.
	Forgotten bool `json:"forgotten,omitempty"`
}

// State keeps the node's memory of pools in the state directory.
type State struct{ dir disk.FS }

// Remembered is one pool's memory, or why it cannot be read.
type Remembered struct {
	Memory
	Err error
}

// Used reports whether this node has used the pool, and its filesystem was not forgotten since.
func (r Remembered) Used() bool { return r.Err != nil || r.ID != "" }

// NewState uses an open state directory.
func NewState(dir disk.FS) (State, error) {
	if err := dir.Mkdir(memoryDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return State{}, fmt.Errorf("make %s in the state directory: %w", memoryDir, err)
	}
	return State{dir: dir}, dir.Sync(".")
}

// All gives what is remembered, by pool name. A file that cannot be read is the trouble of its pool alone.
func (s State) All() (map[string]Remembered, error) {
	entries, err := s.dir.ReadDir(memoryDir)
	if err != nil {
		return nil, fmt.Errorf("list the pools that this node remembers: %w", err)
	}
	known := map[string]Remembered{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name, ".json"); ok && !strings.HasPrefix(name, ".") {
			known[name] = s.read(e.Name)
		}
	}
	return known, nil
}

func (s State) read(file string) (r Remembered) {
	data, err := s.dir.ReadFile(path.Join(memoryDir, file))
	if err == nil {
		err = json.Unmarshal(data, &r.Memory)
	}
	if err == nil && r.ID == "" && !r.Forgotten {
		err = errors.New("it names no pool")
	}
	if err != nil {
		r.Err = fmt.Errorf("the state directory's %s/%s cannot be read: %w; see that the pool's right filesystem is "+
			"mounted, then: driver pool forget %s", memoryDir, file, err, strings.TrimSuffix(file, ".json"))
	}
	return r
}

// Put remembers a pool, durably.
func (s State) Put(name string, m Memory) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what to remember of pool %s: %w", name, err)
	}
	if err := disk.ReplaceFile(s.dir, path.Join(memoryDir, name+".json"), append(data, '\n')); err != nil {
		return fmt.Errorf("remember pool %s: %w", name, err)
	}
	return nil
}
