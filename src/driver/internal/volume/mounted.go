package volume

import (
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// targets are where a volume was mounted when that was last looked at.
func (m *Manager) targets(id string) (targets []string) {
	m.mounts.Range(func(key, _ any) bool {
		if at, ok := key.(mountpoint); ok && at.id == id {
			targets = append(targets, at.target)
		}
		return true
	})
	slices.Sort(targets)
	return targets
}

// Published reports whether a volume is mounted anywhere on this node; in doubt it is.
func (m *Manager) Published(id string) bool {
	return slices.ContainsFunc(m.targets(id), func(target string) bool {
		mount, err := m.Mounter.Inspect(target)
		return err != nil || mount.Mounted
	})
}

// mountedAt gives a target, other than one, at which a volume is mounted now; "" where there is none.
func (m *Manager) mountedAt(id string, data disk.Info, other string) (at string, err error) {
	for _, target := range m.targets(id) {
		mount, err := m.Mounter.Inspect(target)
		switch {
		case err != nil:
			return "", fmt.Errorf("see whether volume %s is mounted at %s: %w", id, target, err)
		case !mount.Mounted || !sameMount(mount, data):
			m.mounts.Delete(mountpoint{id, target})
		case at == "" && target != other:
			at = target
		}
	}
	return at, nil
}

// unused refuses a volume that is published.
func (m *Manager) unused(id string, data disk.Info) error {
	at, err := m.mountedAt(id, data, "")
	if at != "" {
		return fmt.Errorf("%w: %s is mounted at %s; delete the pod that uses it first", ErrPublished, id, at)
	}
	return err
}
