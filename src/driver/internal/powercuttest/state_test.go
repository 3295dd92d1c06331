//go:build vm

package powercuttest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// State is what the disk has and the driver says. The state of tests/vm/found_test.go has the same fields.
type State struct {
	Volumes   map[string]Volume // by the id in the name of a record
	Untracked []string          // in csi/, without a record
	Prepared  []string          // among the records and none
	Staging   []string
	Trash     []string
	Limits    map[uint64]int64 // in bytes, by project ID or qgroup ID; all that can be volumes'
	Promised  int64
}

// Volume is one record, of a volume or a snapshot, and what it is about.
type Volume struct {
	Bytes, Limit int64
	Held         int64  // for copies of the volume
	QuotaID      uint64 // of the record
	Counted      uint64 // what the directory counts to
	Source       string // the id of what it is a copy of
	Filling      bool   // a copy that is not whole
	Shares       bool   // a snapshot whose data counts to others
	Pins         map[uint64]int64
	Data         bool
	Sum          string // of what mark has written, or a copy has of that
}

// firstID is the least ID that is a volume's.
const firstID = 1 << 30

// lookBesideDriver reads the state and what the driver says of it.
func lookBesideDriver(d disk.FS) (State, error) {
	s, err := look(d)
	if err != nil {
		return s, err
	}
	promised, err := metric("promised_bytes")
	s.Promised = int64(promised)
	return s, err
}

// look reads the state.
func look(d disk.FS) (State, error) {
	s := State{Volumes: map[string]Volume{}, Limits: map[uint64]int64{}}
	backend, err := quota.New("/etc").Detect(d, poolspec.QuotaAuto, false)
	if err != nil {
		return s, err
	}
	entries, err := d.ReadDir(disk.VolumesDir)
	if errors.Is(err, fs.ErrNotExist) { // the power was cut before the pool was made
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		id, is := strings.CutSuffix(e.Name, ".json")
		if !is || nodeapi.ValidateID(id) != nil {
			s.Prepared = append(s.Prepared, e.Name)
			continue
		}
		if s.Volumes[id], err = lookAt(d, backend.On(d), id); err != nil {
			return s, err
		}
	}
	none := func(string) bool { return false }
	inCSI := func(name string) bool { _, is := s.Volumes[name]; return is || name == disk.MetaDir }
	spare := func(name string) bool { return name == ".spare" }
	var errs [3]error
	s.Untracked, errs[0] = names(d, ".", inCSI)
	s.Staging, errs[1] = names(d, disk.StagingDir, none)
	s.Trash, errs[2] = names(d, disk.TrashDir, spare)
	if err := errors.Join(errs[:]...); err != nil {
		return s, err
	}
	s.Limits, err = limits(d, backend)
	return s, err
}

func lookAt(d disk.FS, limits quota.Limits, id string) (Volume, error) {
	r, err := store.Read(d, id)
	if err != nil {
		return Volume{}, err
	}
	v := Volume{
		Bytes: r.Bytes, Limit: r.Limit().Bytes, QuotaID: uint64(r.QuotaID), Pins: map[uint64]int64{},
		Filling: r.Filling(), Shares: r.Kind == store.OfSnapshot && !r.Source.ByFile,
	}
	if r.Kind == store.OfVolume && !r.Filling() {
		v.Held = r.Held
	}
	if r.Source != nil {
		v.Source = r.Source.ID
	}
	for _, p := range r.Pins {
		v.Pins[uint64(p.ID)] = p.Bytes
	}
	_, err = d.Stat(id)
	v.Data = err == nil
	name := id
	if v.Filling && !v.Data {
		name = store.Staged(id)
		_, err = d.Stat(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if v.Data {
		v.Sum, err = sum(id)
	}
	counted, checked := limits.Check(name, r.QuotaID)
	v.Counted = uint64(counted.ID)
	return v, errors.Join(err, checked)
}

// names lists a directory less the names that are known.
func names(d disk.FS, dir string, known func(string) bool) ([]string, error) {
	entries, err := d.ReadDir(dir)
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

// limits are those of all IDs that can be volumes', whether a record names them or not.
func limits(d disk.FS, backend quota.Backend) (map[uint64]int64, error) {
	all := map[uint64]int64{}
	top, err := d.Open(".")
	if err != nil {
		return all, err
	}
	defer func() { _ = top.Close() }()
	switch backend.Name {
	case quota.Btrfs:
		found, err := btrfs.Qgroups(top.File, btrfs.NewQgroupID(1, firstID), btrfs.NewQgroupID(1, math.MaxUint64))
		for _, q := range found {
			all[q.ID.ID()] = int64(q.Limit)
		}
		return all, err
	case quota.Project:
		return all, projectLimits(top.File, all)
	default: // btrfs before the driver first ran
		return all, nil
	}
}

func projectLimits(top *os.File, all map[uint64]int64) error {
	for from := uint32(firstID); ; from++ {
		q, err := projectquota.Next(top, from)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if from = q.ID; q.Limit != (projectquota.Limit{}) {
			all[uint64(q.ID)] = int64(q.Limit.Bytes)
		}
	}
}

// metric is a figure of the pool as the driver's metrics have it.
func metric(name string) (float64, error) {
	answer, err := http.Get("http://" + metricsAddress + "/metrics")
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	match := regexp.MustCompile(`(?m)^hpp_pool_` + name + `\{[^}]*\} (\S+)$`).FindSubmatch(body)
	if match == nil {
		return 0, fmt.Errorf("no hpp_pool_%s among the driver's metrics", name)
	}
	return strconv.ParseFloat(string(match[1]), 64)
}
