// Package vm runs a program on a kernel of Debian's in a virtual machine (qemu, no KVM needed): the filesystem features
// that the machine's own kernel may lack, and power that can be cut at any moment.
package vm

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// The kernel is that of Debian's stable release at the time of writing (6.12), whatever this machine runs: it has
// project quota on XFS and ext4, and simple quota on btrfs.
const (
	suite = "trixie"
	meta  = "linux-image-amd64"
)

// Kernel is an unpacked kernel package.
type Kernel struct {
	Image   string // vmlinuz
	Release string // as uname -r says
	root    string // below it lib/modules
}

// Fetch returns the kernel in the cache, and downloads the newest of its suite when there is none: nothing is
// installed. (To get a newer one, remove vm/ in the cache.)
func Fetch(ctx context.Context, report func(string)) (Kernel, error) {
	dir, err := cache.Open()
	if err != nil {
		return Kernel{}, err
	}
	kernels, err := filepath.Glob(dir.Path("vm", "linux-*", "complete"))
	if err != nil {
		return Kernel{}, err
	}
	if len(kernels) > 0 {
		return opened(filepath.Dir(slices.Max(kernels)))
	}
	if err := need("depmod"); err != nil {
		return Kernel{}, err
	}
	report("asking Debian for its newest kernel (once; it stays in " + dir.Path("vm") + ")")
	apt, err := newApt(ctx, dir)
	if err != nil {
		return Kernel{}, err
	}
	name, version, err := apt.newest(ctx)
	if err != nil {
		return Kernel{}, err
	}
	entry := filepath.Join("vm", "linux-"+strings.ReplaceAll(version, "/", "_"))
	folder, err := dir.Once(entry, func(folder string) error {
		report("downloading " + name + " " + version + " (100 MB)")
		return apt.unpack(ctx, name, folder)
	})
	if err != nil {
		return Kernel{}, err
	}
	return opened(folder)
}

func opened(folder string) (Kernel, error) {
	images, err := filepath.Glob(filepath.Join(folder, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return Kernel{}, fmt.Errorf("%s must have one kernel in it, found %v; remove it", folder, images)
	}
	return Kernel{
		Image: images[0], Release: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-"),
		root: folder,
	}, nil
}

// Modules lists the files of modules and of those that they need, in the order of loading.
func (k Kernel) Modules(ctx context.Context, names ...string) ([]string, error) {
	if err := need("modprobe"); err != nil {
		return nil, err
	}
	var files []string
	for _, name := range names {
		out, err := exec.CommandContext(ctx, "modprobe", "-d", k.root, "-S", k.Release, "--show-depends", name).Output()
		if err != nil {
			return nil, fmt.Errorf("list what module %s needs: %w", name, err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "insmod" || slices.Contains(files, fields[1]) { // else: builtin
				continue
			}
			files = append(files, fields[1])
		}
	}
	return files, nil
}

// need says which programs are missing, and in which package they are.
func need(programs ...string) error {
	packages := map[string]string{
		"depmod": "kmod", "modprobe": "kmod",
		"mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs", "mkfs.btrfs": "btrfs-progs",
		"qemu-system-x86_64": "qemu-system-x86",
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: `go -C tools run ./install %s` installs Debian's package %s (root): %w",
				program, program, packages[program], err)
		}
	}
	return nil
}
