package networkfs

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// The parameters of a StorageClass, in any case.
const (
	pvDirKey       = "pvDir"
	cephFSQuotaKey = "cephFSQuota"
)

// parameters are what a StorageClass says.
type parameters struct {
	// pvDir is where the class's volumes lie: absolute, clean and not "/".
	pvDir string
	// cephFSQuota makes CephFS keep a volume to its size.
	cephFSQuota bool
}

// parse reads the parameters of a class. What is not understood is refused: a typo must not provision.
func parse(class *storagev1.StorageClass) (parameters, error) {
	given := map[string]string{} // by the key in small letters
	for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
		small := strings.ToLower(key)
		if _, twice := given[small]; twice {
			return parameters{}, fmt.Errorf("StorageClass %s has the parameter %s twice, in different letters",
				class.Name, key)
		}
		if small != strings.ToLower(pvDirKey) && small != strings.ToLower(cephFSQuotaKey) {
			return parameters{}, fmt.Errorf("StorageClass %s has the parameter %q, and provisioner %s knows %s and %s",
				class.Name, key, class.Provisioner, pvDirKey, cephFSQuotaKey)
		}
		given[small] = class.Parameters[key]
	}
	dir, err := cleaned(given[strings.ToLower(pvDirKey)])
	if err != nil {
		return parameters{}, fmt.Errorf("StorageClass %s: %w", class.Name, err)
	}
	quota := given[strings.ToLower(cephFSQuotaKey)]
	if quota != "" && quota != "true" && quota != "false" {
		return parameters{}, fmt.Errorf("StorageClass %s: parameter %s: %q: want true or false",
			class.Name, cephFSQuotaKey, quota)
	}
	return parameters{pvDir: dir, cephFSQuota: quota == "true"}, nil
}

// cleaned takes an absolute path; a slash too many does no harm.
func cleaned(dir string) (string, error) {
	if dir == "" {
		return "", fmt.Errorf("parameter %s is missing; it names the directory on the storage where volumes are "+
			"made, such as /ceph/pvs", pvDirKey)
	}
	elements := strings.Split(dir, "/")
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" ||
		slices.Contains(elements, ".") || slices.Contains(elements, "..") {
		return "", fmt.Errorf("parameter %s: %q: want the absolute path of a directory on the storage, without . and "+
			".., such as /ceph/pvs", pvDirKey, dir)
	}
	return filepath.Clean(dir), nil
}
