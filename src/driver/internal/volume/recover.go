package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// survey is what a pool's disk holds of one id.
type survey struct {
	record bool // a record that can be used
	broken bool // a record, or something in the data's place, that cannot be used
	data   bool // csi/<id>
	staged bool // .hpp/staging/<id>
	alias  bool // both are the same directory: a rename that a crash cut in half
	// unfinished is the newest trash entry of a delete that was interrupted between data and record, "" where there is none.
	unfinished string
}

// verdict is what recovery does about an id.
type verdict int

const (
	healthy      verdict = iota // record and data
	refused                     // not understood: nothing is touched
	foreign                     // data that no record claims: nothing is touched
	undoCreate                  // record and staging: never answered, both go
	finishDelete                // record, and data in the trash: the record follows
	lostData                    // record, and no data anywhere: reported, never made again
	dropStaged                  // staging that belongs to nothing
	nothing
)

// verdict is the recovery table (docs/reference/on-disk.md), first match first.
func (s survey) verdict() verdict {
	switch {
	case s.broken:
		return refused
	case s.record && s.data:
		return healthy
	case s.record && s.staged:
		return undoCreate
	case s.record && s.unfinished != "":
		return finishDelete
	case s.record:
		return lostData
	case s.data:
		return foreign
	case s.staged:
		return dropStaged
	default:
		return nothing
	}
}

// Report names the volumes of a pool that need a person's attention.
type Report struct {
	Lost      []string // a record, but no data
	Refused   []string // a record, or what stands in the data's place, cannot be used
	Unheld    []string // the limit cannot be held; these, and the next, are in the ledger
	Uncleared []string // what an interrupted operation left cannot be cleared
	Foreign   []string // a directory that neither a record nor a PersistentVolume names
	// Unchecked tells that the Kubernetes API did not answer, so Foreign may hold volumes to adopt: recover again.
	Unchecked bool
}

// Recover puts a pool that just became present in order: it completes or undoes what was interrupted, adopts directories that
// PersistentVolumes name, and fills the pool's ledger. No other work on the pool may be under way. It can be repeated.
func (m *Manager) Recover(ctx context.Context, p Pool, disk poolfs.FS) (Report, error) {
	surveys, records, err := m.surveyAll(disk)
	if err != nil {
		return Report{}, fmt.Errorf("recover pool %s: %w", p.Name(), err)
	}
	if err := m.forgetUnplaced(p, disk, surveys); err != nil {
		return Report{}, fmt.Errorf("recover pool %s: %w", p.Name(), err)
	}
	var report Report
	var whole, gone []Record
	for _, id := range slices.Sorted(maps.Keys(surveys)) {
		s := surveys[id]
		if err := m.settle(ctx, disk, id, s); err != nil { // one bad volume does not keep the others
			m.Log.Error("cannot recover a volume", logging.KeyID, id, logging.KeyPool, p.Name(), logging.KeyError, err)
			if s.verdict() == healthy { // only its leftovers are in trouble
				whole = append(whole, records[id])
				report.Uncleared = append(report.Uncleared, id)
			} else {
				report.Refused = append(report.Refused, id)
			}
			continue
		}
		switch s.verdict() {
		case lostData:
			report.Lost = append(report.Lost, id)
			gone = append(gone, records[id])
		case healthy:
			whole = append(whole, records[id])
		case refused:
			report.Refused = append(report.Refused, id)
		case foreign:
			report.Foreign = append(report.Foreign, id)
		case undoCreate, finishDelete, dropStaged, nothing: // settled, nobody needs to know
		}
	}
	m.takeIn(p, disk, whole, &report)
	for _, r := range gone { // after the others: a number is rather that of a volume with data
		p.Ledger().Put(r)
	}
	m.adoptAll(ctx, p, disk, &report)
	slices.Sort(report.Lost)
	slices.Sort(report.Refused)
	slices.Sort(report.Unheld) // Uncleared is sorted
	slices.Sort(report.Foreign)
	return report, nil
}

// surveyAll looks at everything that lies in a pool.
func (m *Manager) surveyAll(disk poolfs.FS) (map[string]survey, map[string]Record, error) {
	surveys, records := map[string]survey{}, map[string]Record{}
	ids, err := m.Records.List(disk)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		r, err := m.Records.Read(disk, id)
		if err != nil && !errors.Is(err, ErrBroken) {
			return nil, nil, err
		}
		if err != nil {
			m.Log.Error("a volume is refused", logging.KeyID, id, logging.KeyError, err)
		}
		records[id] = r
		surveys[id] = survey{record: err == nil, broken: err != nil}
	}
	if err := surveyNames(disk, ".", surveys, func(s *survey, isDir bool) { s.data, s.broken = isDir, s.broken || !isDir }); err != nil {
		return nil, nil, err
	}
	if err := surveyNames(disk, poolfs.StagingDir, surveys, func(s *survey, isDir bool) { s.staged = isDir }); err != nil {
		return nil, nil, err
	}
	entries, err := m.Bin.Entries(disk, "")
	if err != nil {
		return nil, nil, err
	}
	if err := m.removeEmpty(disk, entries, surveys); err != nil {
		return nil, nil, err
	}
	noteUnfinished(entries, surveys)
	return surveys, records, markAliases(disk, surveys)
}

// surveyNames notes the names of a directory that could be ids. What is no directory stands in a volume's way only
// where there is a record or a volume of that name: a stray file in csi/ is nobody's business.
func surveyNames(disk poolfs.FS, dir string, surveys map[string]survey, note func(s *survey, isDir bool)) error {
	entries, err := disk.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, known := surveys[e.Name]
		if ValidateID(e.Name) != nil || (!e.Dir && !known) {
			continue
		}
		note(&s, e.Dir)
		surveys[e.Name] = s
	}
	return nil
}

// removeEmpty removes the trash entries of deletes that were interrupted before they had moved anything.
func (m *Manager) removeEmpty(disk poolfs.FS, entries []BinEntry, surveys map[string]survey) error {
	for _, e := range entries {
		if !e.Empty || surveys[e.ID].broken {
			continue
		}
		if err := m.Bin.RemoveEmpty(disk, e); err != nil {
			return err
		}
	}
	return nil
}

// noteUnfinished notes interrupted deletes.
func noteUnfinished(entries []BinEntry, surveys map[string]survey) {
	for _, e := range entries {
		if e.Unfinished {
			s := surveys[e.ID]
			s.unfinished = max(s.unfinished, e.Name)
			surveys[e.ID] = s
		}
	}
}

func markAliases(disk poolfs.FS, surveys map[string]survey) error {
	for id, s := range surveys {
		if !s.data || !s.staged {
			continue
		}
		alias, err := isAlias(disk, id)
		if err != nil {
			return err
		}
		s.alias = alias
		surveys[id] = s
	}
	return nil
}

// isAlias tells whether csi/<id> and its name in staging are one directory.
func isAlias(disk poolfs.FS, id string) (bool, error) {
	data, err := disk.Stat(id)
	if err != nil {
		return false, err
	}
	staged, err := disk.Stat(path.Join(poolfs.StagingDir, id))
	return data.Dev == staged.Dev && data.Ino == staged.Ino, err
}

// survey looks at one id.
func (m *Manager) survey(disk poolfs.FS, id string) (survey, error) {
	var s survey
	_, err := m.Records.Read(disk, id)
	switch {
	case err == nil:
		s.record = true
	case errors.Is(err, ErrBroken):
		s.broken = true
	case !errors.Is(err, ErrNotFound):
		return s, err
	}
	if _, s.data, err = exists(disk, id); err != nil {
		return s, err
	}
	if _, s.staged, err = exists(disk, path.Join(poolfs.StagingDir, id)); err != nil {
		return s, err
	}
	if s.data && s.staged {
		if s.alias, err = isAlias(disk, id); err != nil {
			return s, err
		}
	}
	entries, err := m.Bin.Entries(disk, id)
	surveys := map[string]survey{id: s}
	noteUnfinished(entries, surveys)
	return surveys[id], err
}

// settle does what the verdict says about one id. It never touches data in csi/.
func (m *Manager) settle(ctx context.Context, disk poolfs.FS, id string, s survey) error {
	switch s.verdict() {
	case undoCreate:
		// The record first: staging without a record is removed by the next recovery, a record without data would be lost data.
		if err := m.Records.Remove(disk, id); err != nil {
			return err
		}
		return removeStaged(ctx, disk, id)
	case finishDelete:
		return m.Bin.Finish(disk, s.unfinished, id)
	case dropStaged:
		return removeStaged(ctx, disk, id)
	case healthy, foreign:
		return dropLeftover(ctx, disk, id, s)
	default:
		return nil
	}
}

// dropLeftover clears staging of an id whose data is in place. A second name of that very directory is only unlinked, which
// fails, harmlessly, when it holds anything.
func dropLeftover(ctx context.Context, disk poolfs.FS, id string, s survey) error {
	switch {
	case !s.staged:
		return nil
	case s.alias:
		if err := disk.Remove(path.Join(poolfs.StagingDir, id)); err != nil {
			return fmt.Errorf("csi/%s and its name in staging are one directory; check the filesystem: %w", id, err)
		}
		return syncDirs(disk, poolfs.StagingDir)
	default:
		return removeStaged(ctx, disk, id)
	}
}
