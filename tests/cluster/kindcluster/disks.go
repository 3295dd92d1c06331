package kindcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// LoopDevices is shell that names a node's loop devices: without it only those have a name that were there when its
// container was made.
const LoopDevices = "[ -c /dev/loop-control ] || mknod /dev/loop-control c 10 237\n" +
	"for i in $(seq 0 63); do [ -b /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done\n"

// CopyBtrfs puts a new btrfs filesystem of a size ("1G"), as a file, onto a node. Its quota is off. It is made on this
// machine, because public node images have no mkfs.btrfs.
func (c *Cluster) CopyBtrfs(ctx context.Context, node, file, size string) (err error) {
	mkfs, err := exec.LookPath("mkfs.btrfs")
	if err != nil {
		return fmt.Errorf("mkfs.btrfs is missing here: run `go -C tools run ./install mkfs.btrfs`, "+
			"which installs it with apt: %w", err)
	}
	work, err := os.MkdirTemp("", "hpp-btrfs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	made := filepath.Join(work, filepath.Base(file))
	for _, command := range [][]string{{"truncate", "-s", size, made}, {mkfs, "-q", made}} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, out)
		}
	}
	return c.CopyToNode(ctx, node, made, filepath.Dir(file))
}
