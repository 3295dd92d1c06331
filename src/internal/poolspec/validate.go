package poolspec

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const (
	// maxOvercommit keeps the products with a filesystem's size well inside 64 bits.
	maxOvercommit = 1000
	// maxPath leaves room below PATH_MAX (4096, linux/limits.h) for csi/.hpp/trash/<id>.<n>/data.
	maxPath = 1024
	// maxRetention is 114 years; the chart counts six digits.
	maxRetention = Duration(999999 * time.Hour)
)

// mistyped is a path that somebody meant as a pattern, a list or a variable.
var mistyped = regexp.MustCompile(`[*?,<>${}]| $`)

// Validate checks every rule of the schema. It expects the defaults to be filled in.
func (c Config) Validate() field.ErrorList {
	var found field.ErrorList
	for i := range c.StoragePools {
		found = append(found, c.ValidatePool(i, field.NewPath("storagePools").Index(i))...)
	}
	return found
}

// ValidatePool checks the rules for one pool, which has the given path. A conflict between two pools is an error of
// both and names the other pool; a name that two pools have is an error of the second.
func (c Config) ValidatePool(i int, at *field.Path) field.ErrorList {
	p, found := c.StoragePools[i], field.ErrorList{}
	invalid := func(broken bool, name string, value any, want string) {
		if broken {
			found = append(found, field.Invalid(at.Child(name), value, want))
		}
	}
	clean, system := path.Clean(p.Path), systemDirectory(p.Path)
	invalid(len(validation.IsDNS1123Label(p.Name)) > 0, "name", p.Name,
		"want a DNS label: 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit")
	invalid(!path.IsAbs(p.Path), "path", p.Path, "want the absolute path of a directory on the node")
	invalid(path.IsAbs(p.Path) && clean != p.Path, "path", p.Path, fmt.Sprintf("it is not clean: write %q", clean))
	invalid(strings.ContainsFunc(p.Path, unicode.IsControl), "path", p.Path, "want a path without control characters")
	invalid(mistyped.MatchString(p.Path), "path", p.Path, "it would be taken as it is written, as the name of one "+
		"directory: want none of *?,<>${}, and no space at its end")
	invalid(len(p.Path) > maxPath, "path", len(p.Path), fmt.Sprintf("want at most %d bytes", maxPath))
	invalid(system != "", "path", p.Path, fmt.Sprintf("it is or lies in %s, a directory of the system: "+
		"want one that belongs to the pool alone, such as /var/lib/hostpath-provisioner", system))
	invalid(p.wrongScope() != "", "scope", p.Scope, p.wrongScope())
	invalid(p.SharedAccess && p.Shared(), "sharedAccess", true,
		"scope shared allows ReadWriteMany on all nodes: leave sharedAccess out")
	invalid(p.PVCTemplate != nil && !p.MountRequired(), "requireMount", false,
		"a pool with pvcTemplate is used only where its claim is mounted: leave requireMount out")
	invalid(!slices.Contains([]Quota{QuotaAuto, QuotaRequired, QuotaNone}, p.Quota), "quota", p.Quota,
		"want auto, required or none")
	invalid(p.Reserve.Bytes < 0, "reserve", p.Reserve, "want 0 bytes or more")
	invalid(!(p.Reserve.Percent >= 0 && p.Reserve.Percent < 100), "reserve", p.Reserve,
		"want 0% or more and less than 100%")
	invalid(!(p.Overcommit >= 0 && p.Overcommit <= maxOvercommit), "overcommit", p.Overcommit,
		fmt.Sprintf("want a factor from 0 (the backend's default) to %d", maxOvercommit))
	invalid(p.MaxVolumes < 0, "maxVolumes", p.MaxVolumes, "want 0 (no limit) or more")
	invalid(p.Trash.Retention < 0 || p.Trash.Retention > maxRetention, "trash.retention", p.Trash.Retention,
		"want 0s (purge at once) to 999999h")
	if p.Shared() {
		const nodeOnly = "a pool with scope shared has it not: no node knows alone what all of them use; leave it out"
		invalid(p.Quota != QuotaNone, "quota", p.Quota,
			"a pool with scope shared has no quota: leave it out, or say none")
		invalid(p.Overcommit != 0, "overcommit", p.Overcommit, nodeOnly)
		invalid(p.MaxVolumes != 0, "maxVolumes", p.MaxVolumes, nodeOnly)
		invalid(p.Inline, "inline", p.Inline, "inline volumes are on one node: give them a pool with scope node")
	}
	for j, other := range c.StoragePools {
		invalid(j < i && other.Name == p.Name, "name", p.Name, "two pools have this name: want one of its own")
		invalid(j != i && overlap(p.Path, other.Path), "path", p.Path, fmt.Sprintf(
			"it and %q of the pool %q lie in one another: want separate directories", other.Path, other.Name))
	}
	return append(found, p.validateSelector(at.Child("nodeSelector"))...)
}

// wrongScope says what is wrong with the scope, "" if nothing is.
func (p Pool) wrongScope() string {
	switch {
	case p.Scope != ScopeNode && p.Scope != ScopeShared:
		return "want node or shared"
	case p.Scope == ScopeNode && p.sharedTemplate():
		return "one claim for all nodes (pvcTemplate with ReadWriteMany) is a filesystem that they share: leave " +
			"scope out, or use ReadWriteOnce for a claim on each node"
	case p.Shared() && p.PVCTemplate != nil && !p.sharedTemplate():
		return "a claim on each node (pvcTemplate without ReadWriteMany) is no filesystem that they share: leave " +
			"scope out, or use ReadWriteMany for one claim of all nodes"
	default:
		return ""
	}
}

// sharedTemplate reports whether the template asks for one claim that all nodes mount.
func (p Pool) sharedTemplate() bool {
	modes, _ := p.PVCTemplate["accessModes"].([]any)
	return slices.Contains(modes, any("ReadWriteMany"))
}

// validateSelector finds labels that no node can have.
func (p Pool) validateSelector(at *field.Path) field.ErrorList {
	var found field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(p.NodeSelector)) {
		for _, why := range validation.IsQualifiedName(key) {
			found = append(found, field.Invalid(at, key, "want a label key: "+why))
		}
		for _, why := range validation.IsValidLabelValue(p.NodeSelector[key]) {
			found = append(found, field.Invalid(at.Key(key), p.NodeSelector[key], "want a label value: "+why))
		}
	}
	return found
}

// Directory is one that is no pool's, and what it is called.
type Directory struct{ What, Path string }

// Clash names the first directory that a pool's path lies in or contains, "" if there is none.
func Clash(name string, others ...Directory) string {
	for _, other := range others {
		if overlap(name, other.Path) {
			return other.What + " " + other.Path
		}
	}
	return ""
}

func overlap(a, b string) bool {
	a, b = path.Clean(a), path.Clean(b)
	return within(a, b) || within(b, a)
}

// within reports whether a clean absolute path is the directory or lies below it.
func within(name, directory string) bool {
	return name == directory || directory == "/" || strings.HasPrefix(name, directory+"/")
}

// systemDirectory is the directory of the system that a pool's path is or lies in, "" if there is none.
func systemDirectory(name string) string {
	// Parents of directories that packages and services share: a pool may lie below them, but not be one of them.
	parents := strings.Fields("/ /home /media /mnt /opt /root /run /srv /tmp /usr/local /var " +
		"/var/cache /var/lib /var/log /var/run /var/tmp")
	// Directories that belong to the operating system or to Kubernetes altogether.
	whole := strings.Fields("/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /lost+found /proc /sbin /sys /usr " +
		"/var/lib/cni /var/lib/containerd /var/lib/containers /var/lib/docker /var/lib/etcd /var/lib/kubelet " +
		"/var/lib/rancher/k3s/agent /var/lib/rancher/k3s/server " +
		"/var/lib/rancher/rke2/agent /var/lib/rancher/rke2/server")
	clean := path.Clean(name)
	if slices.Contains(parents, clean) {
		return clean
	}
	for _, directory := range whole {
		if within(clean, directory) && !within(clean, "/usr/local") {
			return directory
		}
	}
	return ""
}

// ValidName reports whether a name could be that of a pool.
func ValidName(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// DefaultPool is the pool that a StorageClass or a volume means where these pools are there: the one that it names,
// else the pool legacy, else the only one; "" where it means none.
func DefaultPool(pools []string, named string) string {
	switch {
	case named != "":
		return named
	case slices.Contains(pools, names.LegacyPool):
		return names.LegacyPool
	case len(pools) == 1:
		return pools[0]
	default:
		return ""
	}
}
