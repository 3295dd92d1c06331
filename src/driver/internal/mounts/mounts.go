// Package mounts lets package volume publish through package bindmount.
package mounts

import (
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

var errNoFile = errors.New("the source is not on a real disk")

// Mounter implements volume.Mounter below the kubelet's directory. A target that is not below it is volume.ErrInvalid.
type Mounter struct{ tree *bindmount.Tree }

var _ volume.Mounter = (*Mounter)(nil)

// New mounts below the kubelet's directory, which may be a link.
func New(kubeletDir string) *Mounter { return &Mounter{tree: bindmount.New(kubeletDir)} }

// Inspect implements volume.Mounter.
func (m *Mounter) Inspect(target string) (volume.Mount, error) {
	is, err := m.tree.Inspect(target)
	if err != nil {
		return volume.Mount{}, invalid(err)
	}
	return volume.Mount{Mounted: is.Mounted, Dev: is.Dev, Ino: is.Ino, MountOptions: volume.MountOptions(is.Options)}, nil
}

// Bind implements volume.Mounter.
func (m *Mounter) Bind(source poolfs.Handle, target string, o volume.MountOptions) error {
	if source.File == nil {
		return fmt.Errorf("mount at %s: %w", target, errNoFile)
	}
	return invalid(m.tree.Bind(source.File, target, bindmount.Options(o)))
}

// Unmount implements volume.Mounter.
func (m *Mounter) Unmount(target string) error { return invalid(m.tree.Unmount(target)) }

// Published implements volume.Mounter.
func (m *Mounter) Published() (map[string][]string, error) { return m.tree.Published() }

// invalid marks a target outside the kubelet's directory as the request's mistake.
func invalid(err error) error {
	if errors.Is(err, bindmount.ErrTarget) {
		return fmt.Errorf("%w: field target_path: %w", volume.ErrInvalid, err)
	}
	return err
}
