// Package poolclaims provides pools with their filesystems from PersistentVolumeClaims: one for each node that has the
// pool, or one that all of them share. It decides which claims there are to be, and makes them once; it never changes
// or removes one, because volumes are on it.
package poolclaims

import (
	"fmt"
	"hash/fnv"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const (
	// maxName is what kubevirt's operator shortens names to: the length of a label's value.
	maxName = 63
	// mark is what a claim's label has behind the pool's name, and kept how much of a long name is before its hash.
	mark, kept = "-hpp", 50
)

// ClaimName is the name of the claim that provides a pool on a node. It is the one that kubevirt's operator gives it,
// so that a claim which that one made goes on being used.
func ClaimName(pool, node string) string {
	name := names.PoolClaimPrefix + pool + "-" + node
	if len(name) > maxName {
		return names.PoolClaimPrefix + hashName(name)
	}
	return name
}

// SharedClaimName is the name of the claim that provides a pool on all nodes, kubevirt's too. A node of the name
// "shared" would have the same; but a pool has claims of the one kind or of the other.
func SharedClaimName(pool string) string { return ClaimName(pool, "shared") }

// LabelValue is what the label names.PoolClaimLabel of a pool's claims says; kubevirt's too.
func LabelValue(pool string) string {
	if len(pool)+len(mark) > maxName {
		return pool[:kept] + "-" + hashName(pool) + mark
	}
	return pool + mark
}

func hashName(name string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name)) // a hash takes everything
	return fmt.Sprintf("%08x", sum.Sum32())
}

// IsMounter reports whether an object's labels are those of a mounter, or of its pods.
func IsMounter(labels map[string]string) bool {
	return labels["app.kubernetes.io/component"] == "mounter"
}
