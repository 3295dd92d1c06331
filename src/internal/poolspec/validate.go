package poolspec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxOvercommit keeps the products with a filesystem's size well inside 64 bits; nobody promises more than this.
const maxOvercommit = 1000

// maxPath leaves room below PATH_MAX (4096, linux/limits.h) for csi/.hpp/trash/<id>.<n>/data.
const maxPath = 1024

// Violation is a rule of the schema that a pool breaks.
type Violation struct {
	// Pool is the index of the pool.
	Pool int
	// Field is the pool's field, such as path or trash.retention.
	Field string
	// Message says what is wrong and what is wanted.
	Message string
	// With is the index of the pool that it is in conflict with, -1 if the pool alone breaks the rule.
	With int
}

// Validate checks every rule of the schema and gives all violations, one per line, each with its field. It expects
// the defaults to be filled in.
func (c Config) Validate() error {
	var problems []error
	for _, v := range c.Violations() {
		problems = append(problems, fmt.Errorf("storagePools[%d].%s: %s", v.Pool, v.Field, v.Message))
	}
	return errors.Join(problems...)
}

// Violations are what Validate reports, for those who judge them one by one.
func (c Config) Violations() []Violation {
	var found []Violation
	for i, p := range c.StoragePools {
		for _, rule := range p.rules() {
			if rule.broken {
				found = append(found, Violation{Pool: i, Field: rule.field, Message: rule.message, With: -1})
			}
		}
		for _, rule := range p.selectorRules() {
			found = append(found, Violation{Pool: i, Field: rule.field, Message: rule.message, With: -1})
		}
		found = append(found, c.conflicts(i)...)
	}
	return found
}

// Supported refuses what the schema allows but this version of the driver cannot do yet.
func (c Config) Supported() error {
	var problems []error
	for i, p := range c.StoragePools {
		if p.Scope == ScopeShared {
			problems = append(problems, fmt.Errorf("storagePools[%d].scope: shared is not supported by this version of the driver; use node", i))
		}
		if p.PVCTemplate != nil {
			problems = append(problems, fmt.Errorf("storagePools[%d].pvcTemplate: not supported by this version of the driver; "+
				"mount the filesystem at the pool's path and set requireMount instead", i))
		}
	}
	return errors.Join(problems...)
}

// rule is one line of the schema.
type rule struct {
	field   string
	broken  bool
	message string
}

func (p Pool) rules() []rule {
	system := systemDirectory(p.Path)
	return []rule{
		{
			"name", len(validation.IsDNS1123Label(p.Name)) > 0,
			fmt.Sprintf("%q is no DNS label: want 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit", p.Name),
		},
		{"path", p.Path == "", "missing: want the absolute path of a directory on the node"},
		{"path", p.Path != "" && !path.IsAbs(p.Path), fmt.Sprintf("%q is relative: want an absolute path", p.Path)},
		{
			"path", path.IsAbs(p.Path) && path.Clean(p.Path) != p.Path,
			fmt.Sprintf("%q is not clean: write %q", p.Path, path.Clean(p.Path)),
		},
		{"path", strings.ContainsFunc(p.Path, unicode.IsControl), fmt.Sprintf("%q holds a control character", p.Path)},
		{"path", len(p.Path) > maxPath, fmt.Sprintf("%d bytes are too long: want at most %d", len(p.Path), maxPath)},
		{"path", system != "", fmt.Sprintf("%q is or lies in %s, a directory of the system: want one that belongs to the pool alone, "+
			"such as /var/lib/hostpath-provisioner", p.Path, system)},
		{"scope", p.Scope != ScopeNode && p.Scope != ScopeShared, fmt.Sprintf("%q: want %s or %s", p.Scope, ScopeNode, ScopeShared)},
		{
			"quota", !slices.Contains([]Quota{QuotaAuto, QuotaRequired, QuotaNone}, p.Quota),
			fmt.Sprintf("%q: want %s, %s or %s", p.Quota, QuotaAuto, QuotaRequired, QuotaNone),
		},
		{"reserve", p.Reserve.Bytes < 0, fmt.Sprintf("%d bytes: want 0 or more", p.Reserve.Bytes)},
		{
			"reserve", !(p.Reserve.Percent >= 0 && p.Reserve.Percent < 100),
			fmt.Sprintf("%g%%: want 0%% or more and less than 100%%", p.Reserve.Percent),
		},
		{
			"overcommit", !(p.Overcommit >= 0 && p.Overcommit <= maxOvercommit),
			fmt.Sprintf("%g: want a factor from 0 (the backend's default) to %d", p.Overcommit, maxOvercommit),
		},
		{"maxVolumes", p.MaxVolumes < 0, fmt.Sprintf("%d: want 0 (no limit) or more", p.MaxVolumes)},
		{"trash.retention", p.Trash.Retention < 0, "negative: want 0s (purge at once) or more"},
	}
}

// selectorRules are those that a label of nodeSelector breaks: it could never match a node.
func (p Pool) selectorRules() []rule {
	var broken []rule
	for key, value := range p.NodeSelector {
		for _, message := range validation.IsQualifiedName(key) {
			broken = append(broken, rule{"nodeSelector", true, fmt.Sprintf("%q is no label key: %s", key, message)})
		}
		for _, message := range validation.IsValidLabelValue(value) {
			broken = append(broken, rule{"nodeSelector[" + key + "]", true, fmt.Sprintf("%q is no label value: %s", value, message)})
		}
	}
	slices.SortFunc(broken, func(a, b rule) int { return strings.Compare(a.field+a.message, b.field+b.message) })
	return broken
}

// conflicts compares pool i with those before it, so that each pair is reported once.
func (c Config) conflicts(i int) []Violation {
	var found []Violation
	p := c.StoragePools[i]
	for j, other := range c.StoragePools[:i] {
		if p.Name != "" && p.Name == other.Name {
			found = append(found, Violation{i, "name", fmt.Sprintf("%q is already the name of storagePools[%d]; want a name of its own", p.Name, j), j})
		}
		if p.Path != "" && other.Path != "" && (Within(p.Path, other.Path) || Within(other.Path, p.Path)) {
			found = append(found, Violation{i, "path", fmt.Sprintf("%q and storagePools[%d].path %q lie in one another; want separate directories",
				p.Path, j, other.Path), j})
		}
	}
	return found
}

// Within tells whether a clean absolute path is the directory or lies below it.
func Within(name, directory string) bool {
	return name == directory || directory == "/" || strings.HasPrefix(name, directory+"/")
}

// systemDirectory is the directory of the system that a pool's path is or lies in, "" if there is none.
func systemDirectory(name string) string {
	// Parents of directories that packages and services share: a pool may lie below them, but not be one of them.
	parents := []string{
		"/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr/local", "/var",
		"/var/cache", "/var/lib", "/var/log", "/var/run", "/var/tmp",
	}
	// Directories that belong to the operating system or to Kubernetes altogether.
	whole := []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found", "/proc", "/sbin",
		"/sys", "/usr", "/var/lib/cni", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd",
		"/var/lib/kubelet",
	}
	clean := path.Clean(name)
	if slices.Contains(parents, clean) && name != "" {
		return clean
	}
	for _, directory := range whole {
		if Within(clean, directory) && !Within(clean, "/usr/local") {
			return directory
		}
	}
	return ""
}
