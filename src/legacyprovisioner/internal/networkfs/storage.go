package networkfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// directoryMode is that of a pvDir which is not there yet.
const directoryMode = 0o755

// openDirectory opens the directory of a class below the instance's path, through no link: what is there may be others'
// to write to. (Links above are the administrator's.) What is missing is made durably, if that is asked for.
func (p *Provisioner) openDirectory(ctx context.Context, path string, create bool) (*hostpathpv.Directory, error) {
	rest, err := filepath.Rel(p.Path, path)
	if err != nil || !filepath.IsLocal(rest) {
		return nil, fmt.Errorf("%s is not in %s, the path of this instance (-path); nothing is made or removed there",
			path, p.Path)
	}
	all, err := p.Volumes.List(labels.Everything())
	if err == nil {
		err = hostpathpv.Apart(path, all)
	}
	if err != nil {
		return nil, err
	}
	at, err := os.OpenFile(p.Path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the volumes: %w", err)
	}
	defer func() { _ = at.Close() }() // nothing was written through it
	for name := range strings.SplitSeq(rest, "/") {
		next, err := p.openNext(at, name, path, create)
		if err != nil {
			return nil, err
		}
		_ = at.Close() // nothing was written through it
		if at = next; create {
			hostpathpv.WarnOfOthers(ctx, p.Log, at)
		}
	}
	if err := p.checkMount(at); err != nil {
		return nil, err
	}
	return hostpathpv.OpenIn(at)
}

// openNext opens a name in a directory on the way to a path.
func (p *Provisioner) openNext(at *os.File, name, path string, create bool) (*os.File, error) {
	next, err := openat.Open(at, name, unix.O_PATH|unix.O_DIRECTORY, openat.Beneath)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := p.checkMount(at); err != nil {
			return nil, fmt.Errorf("%s is not there, and %w", path, err)
		}
		if err := makeIn(at, name); err != nil {
			return nil, fmt.Errorf("make the directory of the volumes: %w", err)
		}
		next, err = openat.Open(at, name, unix.O_PATH|unix.O_DIRECTORY, openat.Beneath)
	}
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%s is a link, and none is followed below %s, the path of this instance (-path): name "+
			"the directory that it leads to", openat.Path(at, name), p.Path)
	case err != nil:
		return nil, fmt.Errorf("open the directory of the volumes: %w", err)
	}
	return next, nil
}

func (p *Provisioner) checkMount(dir *os.File) error {
	if p.Guard == nil {
		return nil
	}
	return p.Guard.Check(dir, dir.Name())
}

// makeIn makes a directory durably, or takes the one that is there.
func makeIn(at *os.File, name string) error {
	dir, err := hostpathpv.OpenIn(at)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Mkdir(name, directoryMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return dir.File.Sync()
}

// recognize refuses a directory that has none of the volumes which the cluster has in it.
func (p *Provisioner) recognize(dir *hostpathpv.Directory, pvDir string, more ...string) error {
	all, err := p.Volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	var kept []string
	for _, pv := range all {
		if pv.Annotations[names.ProvisionedBy] == p.Name && hostpathpv.Kept(pv, pvDir) {
			kept = append(kept, filepath.Base(pv.Spec.HostPath.Path))
		}
	}
	return hostpathpv.Recognize(dir, kept, more...)
}
