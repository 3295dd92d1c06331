package hostpath

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// maxName is what Linux takes as one name, in bytes.
const maxName = 255

// directoryName is the name of a volume's directory. It always ends in the volume's name,
// which is what Delete relies on.
func (p *Provisioner) directoryName(o controller.ProvisionOptions) string {
	if !p.NamingPrefix {
		return o.PVName
	}
	room := max(0, maxName-len(o.PVName)-1)
	return o.PVC.Name[:min(len(o.PVC.Name), room)] + "-" + o.PVName
}

// openDirectory opens the directory of the volumes, if it is theirs: as mounted as is required, and with one of them,
// or with one of the given names.
func (p *Provisioner) openDirectory(more ...string) (*hostpathpv.Directory, error) {
	all, err := p.Volumes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	if err := hostpathpv.Apart(p.Directory, all); err != nil {
		return nil, fmt.Errorf("the directory of the volumes on node %s: %w", p.Node, err)
	}
	dir, err := hostpathpv.Open(p.Directory)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the volumes on node %s: %w", p.Node, err)
	}
	if p.Guard != nil {
		err = p.Guard.Check(dir.File, p.Directory)
	}
	if err == nil {
		err = p.recognize(dir, all, more...)
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("on node %s: %w", p.Node, err)
	}
	return dir, nil
}

// recognize refuses a directory that has none of the volumes which this node has: their disk is not mounted.
func (p *Provisioner) recognize(dir *hostpathpv.Directory, all []*corev1.PersistentVolume, more ...string) error {
	var kept []string
	for _, pv := range all {
		if p.isOwn(pv) && hostpathpv.Kept(pv, p.Directory) {
			kept = append(kept, filepath.Base(pv.Spec.HostPath.Path))
		}
	}
	return hostpathpv.Recognize(dir, kept, more...)
}

// prepare makes the directory of a volume, if the filesystem could hold what is asked for, and
// gives the volume's capacity.
func (p *Provisioner) prepare(
	ctx context.Context, name string, request resource.Quantity,
) (resource.Quantity, error) {
	dir, err := p.openDirectory(name)
	if err != nil {
		return resource.Quantity{}, err
	}
	defer dir.Close()
	hostpathpv.WarnOfOthers(ctx, p.Log, dir.File)
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.File.Fd()), &st); err != nil {
		return resource.Quantity{}, fmt.Errorf("ask for the size of the filesystem on node %s: %w", p.Node, err)
	}
	size := int64(st.Blocks) * st.Bsize
	if request.CmpInt64(size) > 0 {
		return resource.Quantity{}, fmt.Errorf("the claim asks for %s, and the whole filesystem of %s on node %s has "+
			"%s; ask for less, or for a node with a larger one",
			bytesize.Format(request.Value()), p.Directory, p.Node, bytesize.Format(size))
	}
	if err := hostpathpv.MakeDirectory(dir, name); err != nil {
		return resource.Quantity{}, fmt.Errorf("make the directory of the volume on node %s: %w", p.Node, err)
	}
	if whole := roundDown(size); p.WholeFilesystem && request.CmpInt64(whole) < 0 {
		return *resource.NewQuantity(whole, resource.BinarySI), nil
	}
	return request, nil
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
