package volume

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// forgetUnplaced removes records that were interrupted before they had their name. What cannot be removed is in nobody's way. One of data
// that has no other record stays: after the repair of a filesystem it may be all that is known of that.
func (m *Manager) forgetUnplaced(p Pool, disk poolfs.FS, surveys map[string]survey) error {
	ids, err := m.Records.Unplaced(disk)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if surveys[id].verdict() == foreign {
			m.Log.Warn("a record that was never put in place is kept: there is data of its volume, and no other record", logging.KeyID, id, logging.KeyPool, p.Name())
			continue
		}
		if err := m.Records.Forget(disk, id); err != nil {
			m.Log.Warn("cannot remove a record that was never put in place", logging.KeyID, id, logging.KeyPool, p.Name(), logging.KeyError, err)
		}
	}
	return nil
}
