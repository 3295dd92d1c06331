package volume

import (
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
)

// missingFor is how long the directory of a volume of a shared pool must be missing before its record goes: NFS clients
// remember for up to a minute that a name is not there (acdirmax in nfs(5)), and another node may have just made it.
const missingFor = time.Minute

// confirmMissing is nil once a directory that could not be found is surely not there. In a shared pool it takes two
// looks more than a minute apart; each lists csi/ too, which is answered from elsewhere than a look for a name.
func (m *Manager) confirmMissing(o *pool.Open, id string) error {
	if !o.Shared() {
		return nil
	}
	entries, err := o.Disk.ReadDir(".")
	if err != nil {
		return fmt.Errorf("look for csi/%s: %w", id, err)
	}
	if slices.ContainsFunc(entries, func(e disk.Entry) bool { return e.Name == id }) {
		m.missing.Delete(id)
		return fmt.Errorf("%w: csi/%s is listed, and a look for it says that it is not there; if that stays so, mount "+
			"the filesystem with lookupcache=positive", ErrUncertain, id)
	}
	first, seen := m.missing.LoadOrStore(id, m.Now())
	if since, ok := first.(time.Time); !seen || !ok || m.Now().Sub(since) <= missingFor {
		return fmt.Errorf("%w: csi/%s is not there; its record goes if it is still missing after %s",
			ErrUncertain, id, missingFor)
	}
	return nil
}
