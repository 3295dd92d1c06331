package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	// mode lets every user write, as kubevirt's provisioner does: a hostPath volume gets no owner by fsGroup.
	mode fs.FileMode = 0o777
	// maxName is what Linux takes as one name, in bytes.
	maxName = 255
)

// directoryName is the name of a volume's directory. It always ends in the volume's name,
// which is what Delete relies on.
func (p *Provisioner) directoryName(o controller.ProvisionOptions) string {
	if !p.NamingPrefix {
		return o.PVName
	}
	room := max(0, maxName-len(o.PVName)-1)
	return o.PVC.Name[:min(len(o.PVC.Name), room)] + "-" + o.PVName
}

// prepare makes the directory of a volume, if the filesystem could hold what is asked for, and
// gives the volume's capacity.
func (p *Provisioner) prepare(name string, request resource.Quantity) (resource.Quantity, error) {
	// Opened for each volume: a disk may have been mounted or unmounted since, and a descriptor would keep it busy.
	dir, err := os.OpenRoot(p.Directory)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("open the directory of the volumes on node %s: %w", p.Node, err)
	}
	defer func() { _ = dir.Close() }() // nothing was written through it
	var st unix.Statfs_t
	if err := unix.Statfs(p.Directory, &st); err != nil {
		return resource.Quantity{}, fmt.Errorf("ask for the size of the filesystem on node %s: %w", p.Node, err)
	}
	size := int64(st.Blocks) * st.Bsize
	if request.CmpInt64(size) > 0 {
		return resource.Quantity{}, fmt.Errorf("the claim asks for %s, and the whole filesystem of %s on node %s has %s; "+
			"ask for less, or for a node with a larger one",
			request.String(), p.Directory, p.Node, resource.NewQuantity(size, resource.BinarySI))
	}
	if err := makeDirectory(dir, name); err != nil {
		return resource.Quantity{}, fmt.Errorf("make the directory of the volume on node %s: %w", p.Node, err)
	}
	if whole := roundDown(size); p.WholeFilesystem && request.CmpInt64(whole) < 0 {
		return *resource.NewQuantity(whole, resource.BinarySI), nil
	}
	return request, nil
}

// makeDirectory makes a directory durably, or takes the one that is there: no other claim has ever had its name, so an
// attempt that ended early has made it.
func makeDirectory(dir *os.Root, name string) error {
	if err := dir.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is there and is not a directory; move it away", filepath.Join(dir.Name(), name))
	}
	if err := dir.Chmod(name, mode); err != nil { // whatever the umask
		return err
	}
	return sync(dir)
}

// sync makes the entries of a directory durable.
func sync(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was open for reading
	return f.Sync()
}

// roundDown gives a size in bytes in the largest unit of which there are at least ten, as kubevirt's provisioner does.
func roundDown(size int64) int64 {
	const mebibyte, gibibyte, least = 1 << 20, 1 << 30, 10
	for _, unit := range []int64{gibibyte, mebibyte} {
		if size/unit >= least {
			return size / unit * unit
		}
	}
	return size
}
