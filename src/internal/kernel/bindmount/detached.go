package bindmount

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Clone copies the mount that a directory is in, beginning at that directory. The copy is open on its root and attached
// nowhere: it goes when it is closed, unless it was attached.
func Clone(source *os.File) (*os.File, error) {
	tree, err := unix.OpenTree(int(source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("clone the mount of %s: %w", source.Name(), err)
	}
	return os.NewFile(uintptr(tree), source.Name()), nil
}

// Device mounts the filesystem on a block device, attached nowhere, as Clone does. A filesystem that is mounted already
// is the same one. The flags are mount options without a value, mount(8)'s (ro, prjquota).
func Device(device, fsType string, flags ...string) (*os.File, error) {
	opened, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s: the kernel has no %s: %w", device, fsType, err)
	}
	defer unix.Close(opened)
	err = unix.FsconfigSetString(opened, "source", device)
	for _, flag := range flags {
		if err == nil {
			err = unix.FsconfigSetFlag(opened, flag)
		}
	}
	if err == nil {
		err = unix.FsconfigCreate(opened)
	}
	mount := -1
	if err == nil {
		mount, err = unix.Fsmount(opened, unix.FSMOUNT_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("mount the %s on %s: %w%s", fsType, device, err, kernelMessage(opened))
	}
	return os.NewFile(uintptr(mount), device), nil
}

// kernelMessage is what the kernel has to say about a filesystem context: lines that begin with e, w or i and a space.
func kernelMessage(context int) string {
	var text strings.Builder
	line := make([]byte, 1024)
	for {
		n, err := unix.Read(context, line)
		if err != nil || n < 2 {
			return text.String()
		}
		text.WriteString("; " + strings.TrimSpace(string(line[2:n])))
	}
}
