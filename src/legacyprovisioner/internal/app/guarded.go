package app

import (
	"cmp"
	"flag"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// guarded are the options about what has to be mounted.
type guarded struct {
	requireMount bool
	hostMounts   string
}

func (g *guarded) define(flags *flag.FlagSet, byDefault bool) {
	flags.BoolVar(&g.requireMount, "require-mount", byDefault,
		"make and remove nothing in a directory that is on a disk of the node; false takes any directory, and what "+
			"is\nmade while the storage is not mounted is not on it")
	flags.StringVar(&g.hostMounts, "host-mounts", "",
		"in a pod: where the node's /proc/1/mountinfo is mounted, which says what the node has mounted")
}

func (g *guarded) check(c *command.Check, inPod bool) {
	c.That(!g.requireMount || g.hostMounts != "" || !inPod, "-host-mounts", nil,
		"want the node's mount table: give the pod the node's /proc/1/mountinfo as a hostPath of type File, and say "+
			"here where it is mounted; or -require-mount=false")
}

// current fails when the process has to start anew to see what the node has mounted at a path.
func current(guard *hostpathpv.Guard, path string) error {
	if guard == nil {
		return nil
	}
	return guard.Current(path)
}

// guard looks at mounts; nil where that is not wanted.
func (g *guarded) guard() (*hostpathpv.Guard, error) {
	if !g.requireMount {
		return nil, nil
	}
	guard := &hostpathpv.Guard{Host: cmp.Or(g.hostMounts, mounts.Self)}
	if _, err := mounts.Read(guard.Host); err != nil {
		return nil, fmt.Errorf("-host-mounts: %w", err)
	}
	return guard, nil
}
