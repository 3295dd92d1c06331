package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const memoryDir = "pools"

// Memory is what the node remembers of a pool in the state directory (pools/<name>.json).
type Memory struct {
	// ID is the marker's; "" after `pool forget`, until the next adoption.
	ID   string `json:"id"`
	Path string `json:"path"`
	// Forgotten lets the next adoption go ahead although PersistentVolumes name directories that are missing.
	Forgotten bool `json:"forgotten,omitempty"`
	// Spec is the configuration that the pool was last used with: by that it is served once the driver's own does not
	// have it any more. nil where a driver has written this that did not keep it.
	Spec *poolspec.Pool `json:"configuration,omitempty"`
	// Successor is the pool that was configured for this one's filesystem since: the pool was renamed.
	Successor string `json:"successor,omitempty"`
	// Owner is the cluster that this node knew as its own when it last used the pool, which is shared.
	Owner string `json:"owner,omitempty"`
}

// Equal reports whether two memories are the same on disk.
func (m Memory) Equal(other Memory) bool {
	a, err := json.Marshal(m)
	b, otherErr := json.Marshal(other)
	return err == nil && otherErr == nil && bytes.Equal(a, b)
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

// Served is the configuration by which a pool is served that the driver's own does not have, nil where it is not known.
func (r Remembered) Served(name string) *poolspec.Pool {
	if r.ID == "" || r.Spec == nil || r.Spec.Name != name || r.Spec.Path == "" {
		return nil
	}
	return r.Spec
}

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
			"mounted, then: kubectl hpp pool forget %s --node NODE", memoryDir, file, err,
			strings.TrimSuffix(file, ".json"))
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

// MarkerVersion is the format of the marker that this driver reads and writes.
const MarkerVersion = 2

// Marker is a pool's identity on its own disk (csi/.hpp/pool.json).
type Marker struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	FSID    string    `json:"filesystemID,omitempty"` // statfs(2) f_fsid; for a person, it may change at a reboot
	Created time.Time `json:"created"`
	// Owner is the cluster whose shared pool it is: the UID of its namespace kube-system. "" in other pools, and in
	// those of drivers that did not write it.
	Owner string `json:"owner,omitempty"`
	// EnforcedBy is the backend that last held volumes here to their sizes, "" where none ever did.
	EnforcedBy  string            `json:"enforcedBy,omitempty"`
	Enforcement quota.Enforcement `json:"enforcement,omitempty"`
}

// ReadMarker gives the marker of an open pool, nil where there is none.
func ReadMarker(d disk.Reader) (*Marker, error) {
	data, err := d.ReadFile(disk.MarkerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m Marker
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if m.Version != MarkerVersion || m.ID == "" {
		return nil, fmt.Errorf("it has version %d and id %q, and this driver reads version %d; install the driver "+
			"that wrote it", m.Version, m.ID, MarkerVersion)
	}
	if m.Owner != "" && !ValidOwner(m.Owner) {
		return nil, fmt.Errorf("it is damaged: its owner %.64q is no UID", m.Owner)
	}
	return &m, nil
}

// ValidOwner reports whether a text can be the UID of a cluster.
func ValidOwner(uid string) bool {
	other := func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return uid != "" && len(uid) <= 64 && !strings.ContainsFunc(uid, other)
}

// Write makes a marker durable with disk.CreateFile, or with disk.ReplaceFile where there is one.
func (m *Marker) Write(d disk.FS, how func(disk.FS, string, []byte) error) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the pool's marker: %w", err)
	}
	if err := how(d, disk.MarkerFile, append(data, '\n')); err != nil {
		return fmt.Errorf("mark the pool: %w", err)
	}
	return nil
}
