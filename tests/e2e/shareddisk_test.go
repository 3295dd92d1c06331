package e2e

import (
	"context"
	"errors"
)

// sharedPath is where features that need it give all nodes one filesystem.
const sharedPath = "/var/shared-storage"

// sharedDisk is one filesystem that nodes have at one path: all of them, as one of a network, or each in turn.
type sharedDisk struct{ device, path string }

// shareDisk makes a filesystem and mounts it at a path on every node, until the feature is over. The nodes are
// containers on one kernel, which has a block device's filesystem once, however often it is mounted. (Two machines that
// mounted it would destroy it.) On the nodes it is a mount of its own, on a device that none of their other directories
// is on, and unmountDisk takes it away from one of them.
func (s *scene) shareDisk(name, size, path string) sharedDisk {
	s.t.Helper()
	d := s.makeDisk(name, size, path)
	for _, node := range s.nodes {
		s.mountShared(d, node)
	}
	return d
}

// makeDisk makes ext4 on a loop device that any node can mount at a path, until the feature is over.
func (s *scene) makeDisk(name, size, path string) sharedDisk {
	s.t.Helper()
	holder, image := s.workers[0], disks+"/"+name+".img"
	d := sharedDisk{path: path}
	d.device = s.onNode(holder, "rm -f "+image+"; truncate -s "+size+" "+image+"; mkfs.ext4 -q -F -m 0 "+image+
		"\nlosetup --find --show "+image)
	s.whenDone(func(ctx context.Context) error {
		var errs []error
		for _, node := range s.nodes {
			_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", unmounted(path)+"rmdir "+path+" || true")
			errs = append(errs, err)
		}
		// The kernel frees the device with its last mount, which may be a pod's.
		_, err := s.cluster.NodeExec(ctx, holder, "sh", "-ec", "losetup --detach "+d.device+"; rm "+image)
		return errors.Join(append(errs, err)...)
	})
	return d
}

// mountShared mounts it on a node that does not have it: one that was started again, or the next.
func (s *scene) mountShared(d sharedDisk, node string) {
	s.t.Helper()
	s.onNode(node, "mkdir -p "+d.path+"; mount "+d.device+" "+d.path)
}
