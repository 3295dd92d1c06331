package doctor

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
)

// The kernels from which on the driver serves volumes, and mounts them read-only and with options
// (docs/decisions/0007-mount-api-only.md).
const (
	oldestKernel = "5.8"
	mountKernel  = "5.12"
	newerKernel  = "Upgrade the operating system to Linux 5.12, or better 5.14, from which on sizes are enforced on " +
		"XFS and ext4; on btrfs from 6.7: docs/how-to/use-a-disk.md"
)

// kernels says which nodes with the driver have a kernel that is too old.
func (f Facts) kernels() (checks []Check) {
	nodes := map[string][]string{} // by kernel
	for _, name := range f.served() {
		if n := f.Object(name); n != nil {
			is := n.Status.NodeInfo
			kernel := fmt.Sprintf("%s (%s, %s)", is.KernelVersion, is.OSImage, is.Architecture)
			nodes[kernel] = append(nodes[kernel], name)
		}
	}
	var fine []string
	for _, kernel := range slices.Sorted(maps.Keys(nodes)) {
		is, err := version.ParseGeneric(kernel)
		on := abridge.Names(nodes[kernel])
		switch {
		case err != nil:
			checks = append(checks, one(Warn, fmt.Sprintf("Whether the kernel on %s is new enough is not known: "+
				"%q.", on, kernel))...)
		case is.LessThan(version.MustParseGeneric(oldestKernel)):
			checks = append(checks, one(Fail, fmt.Sprintf("Linux %s on %s is older than %s, which the "+
				"driver needs.", kernel, on, oldestKernel), newerKernel)...)
		case is.LessThan(version.MustParseGeneric(mountKernel)):
			checks = append(checks, one(Warn, fmt.Sprintf("Linux %s on %s is older than %s, which "+
				"read-only volumes and mount options need.", kernel, on, mountKernel), newerKernel)...)
		default:
			fine = append(fine, kernel)
		}
	}
	if len(fine) > 0 {
		checks = append(checks, one(OK, "The kernels are new enough: "+abridge.Names(fine)+".")...)
	}
	return checks
}
