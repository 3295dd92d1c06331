package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
)

// MarkerVersion is the format of the marker that this driver reads and writes.
const MarkerVersion = 2

// Marker is a pool's identity on its own disk (csi/.hpp/pool.json).
type Marker struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	FSID    string    `json:"filesystemID,omitempty"` // statfs(2) f_fsid; for a person, it may change at a reboot
	Created time.Time `json:"created"`
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
		return nil, fmt.Errorf("it has version %d and id %q, and this driver reads version %d; install the driver that "+
			"wrote it", m.Version, m.ID, MarkerVersion)
	}
	return &m, nil
}

// Write makes a marker durable with disk.CreateFile, or with disk.ReplaceFile where there is one.
func (m Marker) Write(d disk.FS, how func(disk.FS, string, []byte) error) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the pool's marker: %w", err)
	}
	if err := how(d, disk.MarkerFile, append(data, '\n')); err != nil {
		return fmt.Errorf("mark the pool: %w", err)
	}
	return nil
}
