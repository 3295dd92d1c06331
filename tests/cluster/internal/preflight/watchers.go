package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// watchersPerNode is what a node takes of inotify instances, counted on a running one: 7 by the kubelet, 5 by
// systemd, the rest by containerd and the control plane.
const watchersPerNode = 17

// Watchers checks that the kernel lets as many more nodes watch files: all nodes of all clusters share one user's
// instances of inotify(7), and a kubelet that gets none dies.
func Watchers(h Host, nodes int) error {
	used, limit, err := h.Watchers()
	if err != nil {
		return fmt.Errorf("ask how many inotify instances are in use: %w", err)
	}
	if want := nodes * watchersPerNode; limit-used < want {
		return fmt.Errorf("only %d of %d inotify instances are left and %d new nodes take %d: remove another kind "+
			"cluster, or raise the limit (sudo sysctl fs.inotify.max_user_instances=%d)",
			max(0, limit-used), limit, nodes, want, max(512, 2*limit))
	}
	return nil
}

// watchers counts the inotify instances of root's processes, and reads their limit. What this user may not see does
// not count. Where the kernel has no such limit (Docker in a machine of its own), there is always room.
func watchers() (used, limit int, err error) {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if os.IsNotExist(err) {
		return 0, 1 << 30, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if limit, err = strconv.Atoi(strings.TrimSpace(string(raw))); err != nil {
		return 0, 0, err
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, 0, err
	}
	for _, fd := range descriptors {
		if target, err := os.Readlink(fd); err == nil && target == "anon_inode:inotify" {
			used++
		}
	}
	return used, limit, nil
}
