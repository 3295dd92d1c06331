package hostpathpv

import (
	"errors"
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
)

// Guard refuses directories that are on a disk of the node: there the storage is not mounted.
type Guard struct {
	// Host is the node's mount table. For a process that runs on the node outside of a container it is mounts.Self.
	Host string
}

// systemPaths are what a node keeps on its own disks, and a container on the node's or in memory. What is on the same
// filesystem as one of these is not the storage.
func systemPaths() []string {
	return []string{
		"/", "/boot", "/dev", "/dev/shm", "/etc", "/etc/hosts", "/proc", "/run", "/sys", "/tmp", "/usr", "/var",
		"/var/lib", "/var/lib/kubelet", "/var/log",
	}
}

// Check refuses an open directory that is not on storage which is mounted on the node now. The process may see another
// filesystem at its path than the node does: a pod keeps what was mounted when it started, also when the node unmounts
// it.
func (g Guard) Check(dir *os.File, path string) error {
	own, host, err := g.tables()
	if err != nil {
		return err
	}
	here, err := own.Of(dir)
	if err != nil {
		return err
	}
	if here == nil {
		return fmt.Errorf("%s: something was mounted there just now; it is looked at again", path)
	}
	whose := "node's"
	system := systemPath(host, here)
	if system == "" {
		whose, system = "container's", systemPath(own, here)
	}
	if system != "" {
		return fmt.Errorf("%s is on the filesystem of the %s %s: the storage is not mounted there, and nothing is "+
			"made or removed until it is", path, whose, system)
	}
	if !host.Has(here) {
		return fmt.Errorf("%s is not mounted on the node any more, and nothing is made or removed until it is", path)
	}
	return nil
}

// Current fails when the node has other storage mounted at a path than this process sees there: it has to start anew
// to see that. The storage itself is not touched: where it hangs, this does not.
func (g Guard) Current(path string) error {
	own, host, err := g.tables()
	if err != nil {
		return err
	}
	here, there := own.At(path), host.At(path)
	switch {
	case here == nil, there == nil, mounts.Same(here, there):
	case mounts.Same(here, own.At("/")): // nothing of the node is there, whenever the process starts
	case systemPath(host, there) != "": // nothing is mounted on the node
	default:
		return fmt.Errorf("%s is another filesystem here (%s) than on the node (%s)", path, here.Source, there.Source)
	}
	return nil
}

// systemPath gives the first of the system's paths that are on a filesystem, "" for none.
func systemPath(table mounts.Table, filesystem *mountinfo.Info) string {
	for _, path := range systemPaths() {
		if at := table.At(path); at != nil && mounts.Same(at, filesystem) {
			return path
		}
	}
	return ""
}

// tables are those of this process and of the node.
func (g Guard) tables() (own, host mounts.Table, err error) {
	if own, err = mounts.Read(mounts.Self); err != nil {
		return nil, nil, err
	}
	if g.Host == mounts.Self {
		return own, own, nil
	}
	if host, err = mounts.Read(g.Host); err == nil && host.At("/") == nil {
		err = errors.New("it has no root")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("see what is mounted on the node: %w", err)
	}
	return own, host, nil
}
