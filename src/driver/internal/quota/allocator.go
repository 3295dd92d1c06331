package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
)

// Project IDs of volumes are in [firstID, endProject). Those below are the admin's and the kubelet's, which counts
// up from 1,048,577. Earlier releases gave volumes higher ones too.
const (
	firstID    = 1 << 30
	endProject = 1 << 31
	// maxLooks is how many IDs are looked at for an unused one.
	maxLooks = 1 << 20
)

// filesystem gives volumes their project IDs, one filesystem's for all pools on it. It goes round, so that an ID comes
// back as late as possible.
type filesystem struct {
	etc string

	mu   sync.Mutex
	next uint32 // 0: nobody has looked
}

// unused gives an ID that nothing counts to, that has no limit and that no file of the admin names.
func (f *filesystem) unused(dir *os.File) (id uint32, err error) {
	named, err := f.named()
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == 0 {
		if f.next, err = afterHighest(dir); err != nil {
			return 0, err
		}
	}
	for range maxLooks {
		if f.next >= endProject {
			f.next = firstID
		}
		id, f.next = f.next, f.next+1
		q, err := projectquota.Get(dir, id)
		if err != nil {
			return 0, err
		}
		if q == (projectquota.Quota{ID: id}) && !named[id] {
			return id, nil
		}
	}
	return 0, ErrExhausted
}

// afterHighest is the ID after the highest one of volumes that the kernel lists.
func afterHighest(dir *os.File) (uint32, error) {
	from, to := uint32(firstID), uint32(endProject) // nothing is listed from `to` on
	for from < to {
		middle := from + (to-from)/2
		q, err := projectquota.Next(dir, middle)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return 0, err
		case err != nil || q.ID >= endProject:
			to = middle
		default:
			from = q.ID + 1
		}
	}
	return from, nil
}

// named are the IDs in projid(5), "name:ID", and projects(5), "ID:path", which need not exist. While one of them cannot
// be read, nobody knows what IDs are the admin's.
func (f *filesystem) named() (map[uint32]bool, error) {
	ids := map[uint32]bool{}
	for _, name := range []string{"projid", "projects"} {
		file := filepath.Join(f.etc, name)
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("see what project IDs are the admin's: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			column, second, _ := strings.Cut(line, ":")
			if name == "projid" {
				column = second
			}
			id, err := strconv.ParseUint(strings.TrimSpace(column), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("see what project IDs are the admin's: %q in %s: %w", line, file, err)
			}
			ids[uint32(id)] = true
		}
	}
	return ids, nil
}
