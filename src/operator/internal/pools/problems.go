package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// Snapshotting is the only feature gate.
	Snapshotting = "Snapshotting"
	// Reflink is the only snapshot provider.
	Reflink = "reflink"
)

// Problem is something in a spec that is not allowed.
type Problem struct {
	// Field is the path of the field as users write it, such as spec.storagePools[1].path.
	Field string
	// Message says what is wrong and what is wanted.
	Message string

	// subject is what the problem is about, whatever place the pool has in the list.
	subject string
}

// String is the field and the message.
func (p Problem) String() string { return p.Field + ": " + p.Message }

// Problems are all that the spec of a resource holds against the rules, whether it was there before or not.
func Problems(spec v1beta1.HostPathProvisionerSpec) []Problem {
	config, found := read(spec)
	found = append(modeProblems(spec), found...)
	for _, v := range config.Violations() {
		field := fmt.Sprintf("spec.storagePools[%d]", v.Pool)
		if len(spec.StoragePools) == 0 {
			field = "spec.pathConfig"
		}
		found = append(found, Problem{Field: field + "." + v.Field, Message: v.Message, subject: subject(config, v)})
	}
	for i, pool := range spec.StoragePools {
		if !slices.Contains([]string{"", Reflink}, pool.SnapshotProvider) {
			found = append(found, Problem{
				Field:   fmt.Sprintf("spec.storagePools[%d].snapshotProvider", i),
				Message: fmt.Sprintf("%q is unknown: want %s, or leave it out", pool.SnapshotProvider, Reflink),
				subject: pool.Name + ".snapshotProvider",
			})
		}
	}
	for i, gate := range spec.FeatureGates {
		if gate != Snapshotting {
			found = append(found, Problem{
				Field:   fmt.Sprintf("spec.featureGates[%d]", i),
				Message: fmt.Sprintf("%q is unknown: the only feature gate is %s", gate, Snapshotting),
				subject: "featureGates",
			})
		}
	}
	return found
}

// NewProblems are those of a spec that the old one does not have: an old violation in a field that nobody touched must
// not keep the rest from being changed.
func NewProblems(old, changed v1beta1.HostPathProvisionerSpec) []Problem {
	before := Problems(old)
	return slices.DeleteFunc(Problems(changed), func(problem Problem) bool {
		return slices.ContainsFunc(before, problem.same)
	})
}

// same tells whether two problems are one, although its pool may have moved in the list. Messages quote the value.
func (p Problem) same(other Problem) bool {
	return p.subject == other.subject && (p.Message == other.Message || strings.HasPrefix(p.subject, conflict))
}

// conflict begins the subject of a problem between two pools, which names both, for its message has their places.
const conflict = "conflict "

func subject(config poolspec.Config, v poolspec.Violation) string {
	pool := config.StoragePools[v.Pool]
	if v.With < 0 {
		return pool.Name + "." + v.Field
	}
	pair := []string{}
	for _, one := range []poolspec.Pool{pool, config.StoragePools[v.With]} {
		pair = append(pair, fmt.Sprintf("%q at %q", one.Name, one.Path))
	}
	slices.Sort(pair)
	return conflict + v.Field + " " + strings.Join(pair, " and ")
}

// modeProblems are those of a spec with both or neither of the ways to say where volumes live.
func modeProblems(spec v1beta1.HostPathProvisionerSpec) []Problem {
	const want = "want one of them; storagePools serves CSI volumes, pathConfig also runs the legacy provisioner"
	some, path := len(spec.StoragePools) > 0, spec.PathConfig != nil
	switch {
	case some && path:
		return []Problem{{Field: "spec", Message: "both storagePools and pathConfig are set: " + want, subject: "mode"}}
	case !some && !path:
		return []Problem{{Field: "spec", Message: "neither storagePools nor pathConfig is set: " + want, subject: "mode"}}
	}
	return nil
}
