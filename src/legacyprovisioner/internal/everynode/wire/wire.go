// Package wire is what the provisioner of volumes on every node and the managers on the nodes have agreed upon: the two
// requests, and what a PersistentVolume says.
package wire

import (
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const (
	// Directories is the path of the two requests, which kubeboost's manager has too: POST makes a directory, with its
	// fields in a form; DELETE removes one, with its fields in the query. 200 means that it is done, durably.
	Directories = "/directories"
	// PathField is the directory's path on the node.
	PathField = "path"
	// Unused comes before the certificate of a node that has no directory of a volume.
	Unused = "This node has no directories of volumes.\n"
	// VolumeField is the name of the directory's PersistentVolume.
	VolumeField = "volume"
)

const (
	// maxName is what Linux takes as one name, in bytes.
	maxName = 255
	// volumes begins the name of each PersistentVolume that is made for a claim; the claim's UID follows.
	volumes = "pvc-"
)

// Path is where a volume's directory is on every node. A claim's name is cut where Linux takes no longer one.
func Path(base string, claim *corev1.PersistentVolumeClaim, volume string) string {
	front := claim.Namespace + "-" + claim.Name
	room := max(0, maxName-len(volume)-1)
	return filepath.Join(base, front[:min(len(front), room)]+"-"+volume)
}

// Name is the name of a volume's directory below the base, if its path is one that Path could have given. No directory
// is that of two volumes: a claim may be named anything, but a UID has no "pvc-" in it, so that the last one counts.
func Name(base, path, volume string) (string, error) {
	name := filepath.Base(path)
	if filepath.Clean(path) != path || filepath.Dir(path) != base {
		return "", fmt.Errorf("path %q is not directly in %s, where this provisioner's volumes are", path, base)
	}
	if at := strings.LastIndex(name, "-"+volumes); at < 1 || name[0] == '.' || name[at+1:] != volume {
		return "", fmt.Errorf("path %q does not end in the name of PersistentVolume %q", path, volume)
	}
	return name, nil
}

// Ours reports whether a PersistentVolume was made by this provisioner, or by kubeboost's of that name.
func Ours(pv *corev1.PersistentVolume, provisioner string) bool {
	return pv.Spec.HostPath != nil && pv.Annotations[names.ProvisionedBy] == provisioner &&
		pv.Annotations[names.EveryNodeIdentity(provisioner)] == provisioner
}

// Wanted reports whether every node is to have the directory of a PersistentVolume.
func Wanted(pv *corev1.PersistentVolume) bool {
	ended := pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
	return !ended && pv.DeletionTimestamp == nil
}
