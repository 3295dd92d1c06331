package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// ErrOccupied refuses something that is no directory where a volume's directory should be.
var ErrOccupied = fmt.Errorf("%w: its place is taken", ErrBroken)

// Survey is what a pool's disk has of one id.
type Survey struct {
	Record     bool   // a record that can be used
	Broken     bool   // a record, or something in the data's place, that cannot be used
	Newer      bool   // the record is whole, and only a newer driver understands it
	Prepared   bool   // a record that was never put in place
	Data       bool   // csi/<id>
	Staged     bool   // .hpp/staging/<id>
	Alias      bool   // Data and Staged are the same directory: a rename that a crash cut in half
	Filling    bool   // the record is of a copy that is not whole
	Filled     bool   // it is of one that was made file by file, and is whole
	Unfinished string // the newest trash entry of a delete that was interrupted between data and record, or ""
	// Shared reports that other nodes may be at work on the id as well. Then Staged and Unfinished are in the
	// directories of Node.
	Shared bool
	Node   string
}

// Verdict is what to do about an id.
type Verdict int

// Verdicts.
const (
	Healthy      Verdict = iota // record and data
	Refused                     // not understood: nothing is touched
	Untracked                   // data without a record: nothing is touched
	UndoCreate                  // record and staging: never answered, both go
	FinishCreate                // the same of a whole copy, or in a shared pool, where another node may be at it
	FinishDelete                // record, and data in the trash: the record follows
	LostData                    // record, and no data anywhere: reported, never made again
	DropStaged                  // what an interrupted create left before there was a record
	Filling                     // a copy that is not whole: it is gone on with, or abandoned
	Nothing
)

// Verdict is the recovery table, first match first.
func (s Survey) Verdict() Verdict {
	switch {
	case s.Broken:
		return Refused
	case !s.Record:
		return s.unrecorded()
	case s.Filling && (s.Staged || s.Data):
		return Filling
	case s.Data:
		return Healthy
	case s.Staged:
		return s.begun()
	case s.Unfinished != "":
		return FinishDelete
	case s.Filling:
		return UndoCreate
	default:
		return LostData
	}
}

func (s Survey) unrecorded() Verdict {
	switch {
	case s.Data:
		return Untracked
	case s.Staged || s.Prepared:
		return DropStaged
	default:
		return Nothing
	}
}

func (s Survey) begun() Verdict {
	if s.Shared || s.Filled {
		return FinishCreate
	}
	return UndoCreate
}

// Look surveys one id. What another node of a shared pool moves meanwhile goes from staging to csi/, and from there to
// the trash: in that order it is looked for.
func (p Pool) Look(id string) (s Survey, r Record, err error) {
	d := p.Disk
	if s, r, err = readRecord(d, id); err != nil {
		return s, r, err
	}
	s.Shared, s.Node = p.Shared(), r.Node
	if _, s.Staged, err = Directory(disk.NodeView(d, r.Node), Staged(id)); err != nil {
		return s, r, err
	}
	if _, s.Data, err = Directory(d, id); err != nil {
		return s, r, err
	}
	var prepared, alias, trash error
	s.Prepared, prepared = isPrepared(d, id)
	s.Alias, alias = isAlias(d, id, s)
	if s.Record && !s.Data && !s.Staged { // else the trash, which is long to look through, makes no difference
		s.Unfinished, s.Node, trash = unfinishedAnywhere(d, id)
	}
	if err := errors.Join(prepared, alias, trash); err != nil {
		return s, r, err
	}
	return s, r, s.confirm(d, id)
}

// readRecord begins a survey with the record.
func readRecord(d disk.FS, id string) (s Survey, r Record, err error) {
	r, err = Read(d, id)
	s = surveyRecord(r, err)
	if s.Broken || errors.Is(err, ErrNotFound) {
		err = nil
	}
	return s, r, err
}

func surveyRecord(r Record, err error) Survey {
	return Survey{
		Record: err == nil, Broken: errors.Is(err, ErrBroken), Newer: errors.Is(err, ErrNewer),
		Filling: r.Filling(), Filled: r.Source != nil && r.Source.ByFile && r.Source.Complete,
	}
}

func unfinished(d disk.FS, id string) (name string, err error) {
	entries, troubles, err := TrashEntries(d, id)
	for _, e := range entries {
		if e.Unfinished {
			name = max(name, e.Name)
		}
	}
	return name, errors.Join(append(troubles, err)...)
}

// Staged is where a volume's directory is until it is moved into place, relative to csi/.
func Staged(id string) string { return path.Join(disk.StagingDir, id) }

// Directory reports whether a name below csi/ is a directory; anything else of that name is ErrOccupied.
func Directory(d disk.FS, name string) (info disk.Info, ok bool, err error) {
	info, err = d.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return info, false, nil
	case err != nil:
		return info, false, fmt.Errorf("look at csi/%s: %w", name, err)
	case !info.Mode.IsDir():
		return info, false, fmt.Errorf("%w: csi/%s is no directory (%s); find out who put it there and move it away",
			ErrOccupied, name, info.Mode.Type())
	}
	return info, true, nil
}

func isPrepared(d disk.FS, id string) (bool, error) {
	_, err := d.Stat(disk.Prepared(Path(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// isAlias reports whether csi/<id> and its name in staging are one directory.
func isAlias(d disk.FS, id string, s Survey) (bool, error) {
	if !s.Data || !s.Staged {
		return false, nil
	}
	data, err := d.Stat(id)
	if err != nil {
		return false, asConcurrent(d, err)
	}
	staged, err := disk.NodeView(d, s.Node).Stat(Staged(id))
	if disk.IsShared(d) && errors.Is(err, fs.ErrNotExist) { // it was moved since
		return false, nil
	}
	return data.Same(staged), err
}

// LookAll surveys everything that lies in a pool. volumes are what keep makes of the records that can be used.
func LookAll[T any](p Pool, keep func(Record) T) (surveys map[string]Survey, volumes map[string]T, err error) {
	placed, prepared, err := List(p.Disk)
	if err != nil {
		return nil, nil, err
	}
	surveys, volumes = map[string]Survey{}, make(map[string]T, len(placed))
	read, found, errs := readAll(p.Disk, placed, keep)
	for i, id := range placed {
		if errs[i] != nil {
			p.Log.Error("a volume's record cannot be used", logging.KeyID, id, logging.KeyError, errs[i])
		} else {
			volumes[id] = read[i]
		}
		surveys[id] = found[i]
	}
	for _, id := range prepared {
		s := surveys[id]
		s.Prepared = true
		surveys[id] = s
	}
	if err := p.names(".", surveys, func(s *Survey, isDir bool) {
		s.Data, s.Broken = isDir, s.Broken || !isDir
	}); err != nil {
		return nil, nil, err
	}
	if err := p.names(disk.StagingDir, surveys, func(s *Survey, isDir bool) { s.Staged = isDir }); err != nil {
		return nil, nil, err
	}
	for id, s := range surveys {
		if s.Alias, err = isAlias(p.Disk, id, s); err != nil {
			p.Log.Error("a volume's directory cannot be looked at", logging.KeyID, id, logging.KeyError, err)
			s.Broken = true
		}
		surveys[id] = s
	}
	return surveys, volumes, p.lookAtTrash(surveys)
}

// readAll reads records on all processors: most of the time that a recovery takes is spent here.
func readAll[T any](d disk.FS, ids []string, keep func(Record) T) ([]T, []Survey, []error) {
	all, found, errs := make([]T, len(ids)), make([]Survey, len(ids)), make([]error, len(ids))
	var workers sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(ids)); i = next.Add(1) - 1 {
				record, err := Read(d, ids[i])
				all[i], found[i], errs[i] = keep(record), surveyRecord(record, err), err
				found[i].Broken = err != nil
			}
		})
	}
	workers.Wait()
	return all, found, errs
}

// names notes the names of a directory that could be ids. What is no directory stands in a volume's way only where
// there is a record or a volume of that name: a stray file in csi/ is nobody's business.
func (p Pool) names(dir string, surveys map[string]Survey, note func(s *Survey, isDir bool)) error {
	entries, err := p.Disk.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, known := surveys[e.Name]
		if !known && (!e.Dir || nodeapi.ValidateID(e.Name) != nil) {
			continue
		}
		note(&s, e.Dir)
		surveys[e.Name] = s
	}
	return nil
}

// lookAtTrash notes interrupted deletes, and removes the entries of those that had moved nothing yet.
func (p Pool) lookAtTrash(surveys map[string]Survey) error {
	entries, troubles, err := TrashEntries(p.Disk, "")
	for _, trouble := range troubles {
		p.Log.Error("a trash entry is left alone", logging.KeyID, "", logging.KeyError, trouble)
	}
	for _, e := range entries {
		s := surveys[e.ID]
		if e.Unfinished {
			s.Unfinished = max(s.Unfinished, e.Name)
			surveys[e.ID] = s
		}
		if e.Empty && !s.Broken && !p.ReadOnly {
			if err := RemoveEmpty(p.Disk, e.Name); err != nil {
				p.Log.Error("a trash entry is left alone", logging.KeyID, e.ID, logging.KeyError, err)
			}
		}
	}
	return err
}
