package app

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// isInline reports whether the kubelet has noted beside a target that it is one of an inline volume of a driver:
// vol_data.json, which it writes before it asks for the volume and removes after (pkg/volume/csi/csi_mounter.go).
func isInline(driver, id, target string) bool {
	f, err := os.Open(filepath.Join(filepath.Dir(target), "vol_data.json"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var note struct {
		Handle string `json:"volumeHandle"`
		Driver string `json:"driverName"`
		Mode   string `json:"volumeLifecycleMode"`
	}
	err = json.NewDecoder(io.LimitReader(f, 1<<16)).Decode(&note)
	return err == nil && note.Handle == id && note.Driver == driver && note.Mode == "Ephemeral"
}
