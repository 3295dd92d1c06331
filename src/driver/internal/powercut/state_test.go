//go:build vm

package powercut

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// State is what the disk holds and the driver says; tests/vm/power_test.go has its twin.
type State struct {
	Volumes  map[string]Volume
	Foreign  []string // in csi/, without a record, or among the records and none
	Staging  []string
	Trash    []string
	Accounts map[uint32]int64 // limits in bytes, of every account of the driver's numbers
	Promised int64
}

// Volume is one record and what it is about.
type Volume struct {
	Bytes   int64
	Number  uint32 // of the record's account
	Counted uint32 // of the account that the directory is tied to
	Data    bool
	Marker  bool // written and synced by mark
}

// look reads the state.
func look(disk poolfs.FS) (State, error) {
	s := State{Volumes: map[string]Volume{}, Accounts: map[uint32]int64{}}
	quotas, ok := poolfs.QuotasOf(disk)
	if !ok {
		return s, errors.New("the pool's filesystem has no quota")
	}
	records, err := disk.ReadDir(poolfs.VolumesDir)
	if err != nil {
		return s, err
	}
	for _, e := range records {
		id, is := strings.CutSuffix(e.Name, ".json")
		if !is {
			s.Foreign = append(s.Foreign, path.Join(poolfs.VolumesDir, e.Name))
			continue
		}
		if s.Volumes[id], err = lookAt(disk, quotas, id); err != nil {
			return s, err
		}
	}
	foreign, err := names(disk, ".", func(name string) bool { _, known := s.Volumes[name]; return known || name == poolfs.MetaDir })
	if err != nil {
		return s, err
	}
	s.Foreign = append(s.Foreign, foreign...)
	if s.Staging, err = names(disk, poolfs.StagingDir, func(string) bool { return false }); err != nil {
		return s, err
	}
	if s.Trash, err = names(disk, poolfs.TrashDir, func(name string) bool { return name == ".spare" }); err != nil {
		return s, err
	}
	const smallest, greatest = 1 << 30, 1<<32 - 2 // ranges of backend.FreeRange
	accounts, err := quotas.Accounts(smallest, greatest)
	if err != nil {
		return s, err
	}
	for _, a := range accounts {
		if !backend.ValidRange(a.Number - a.Number%backend.RangeSize) {
			return s, fmt.Errorf("account %d is out of every range", a.Number)
		}
		s.Accounts[a.Number] = a.Bytes
	}
	s.Promised, err = promised()
	return s, err
}

func lookAt(disk poolfs.FS, quotas poolfs.Quotas, id string) (Volume, error) {
	data, err := disk.ReadFile(path.Join(poolfs.VolumesDir, id+".json"))
	if err != nil {
		return Volume{}, err
	}
	var record volume.Record
	if err := json.Unmarshal(data, &record); err != nil {
		return Volume{}, fmt.Errorf("record of %s: %w", id, err)
	}
	v := Volume{Bytes: record.Bytes, Number: record.ProjectID}
	_, err = disk.Stat(id)
	v.Data = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	_, err = disk.Stat(path.Join(id, "marker"))
	v.Marker = err == nil
	v.Counted, err = quotas.CountedBy(id)
	return v, err
}

// names lists a directory less the names that are known.
func names(disk poolfs.FS, dir string, known func(string) bool) ([]string, error) {
	entries, err := disk.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if !known(e.Name) {
			found = append(found, e.Name)
		}
	}
	return found, nil
}

// promised is what the driver's metrics say.
func promised() (int64, error) {
	answer, err := http.Get("http://" + metricsAddress + "/metrics")
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	match := regexp.MustCompile(`(?m)^hpp_pool_promised_bytes\{[^}]*\} (\S+)$`).FindSubmatch(body)
	if match == nil {
		return 0, errors.New("no hpp_pool_promised_bytes among the driver's metrics")
	}
	value, err := strconv.ParseFloat(string(match[1]), 64)
	return int64(value), err
}

// mark writes a file into a volume, durably.
func mark(disk poolfs.FS, id string) error {
	err := disk.WriteFile(path.Join(id, "marker"), []byte(id), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return disk.Sync(id)
}
