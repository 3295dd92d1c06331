package debian

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// Suite is where programs for images are from. The filesystems that its mkfs makes can be mounted by all kernels from
// 5.10 on; those of newer suites cannot.
const Suite = "bookworm"

// Programs returns the files of programs (paths such as "/sbin/blkid") with the libraries that they link to, all of
// which must be in the packages named, and with the packages' copyright and status. They stay in the cache: a new
// version of a package is seen once debian/ there is removed.
func Programs(ctx context.Context, arch string, packages []string, programs ...string) ([]scratch.File, error) {
	root, err := unpacked(ctx, arch, packages)
	if err != nil {
		return nil, err
	}
	var files []scratch.File
	for _, name := range packages {
		for _, file := range []string{"/usr/share/doc/" + name + "/copyright", "/var/lib/dpkg/status.d/" + name} {
			files = append(files, scratch.File{Path: file, Source: filepath.Join(root, file), Mode: 0o644})
		}
	}
	found := map[string]bool{}
	for pending := programs; len(pending) > 0; {
		name := pending[0]
		pending = pending[1:]
		if found[name] {
			continue
		}
		found[name] = true
		source, err := filepath.EvalSymlinks(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		needed, err := links(root, source)
		if err != nil {
			return nil, fmt.Errorf("find what %s of Debian %s links to: %w", name, Suite, err)
		}
		files, pending = append(files, scratch.File{Path: name, Source: source}), append(pending, needed...)
	}
	return files, nil
}

// unpacked is the folder in the cache with the packages.
func unpacked(ctx context.Context, arch string, packages []string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(packages, " ")))
	entry := filepath.Join(cache, "debian", Suite+"-"+arch+"-"+hex.EncodeToString(key[:6]))
	if _, err := os.Stat(entry); err == nil {
		return entry, nil
	}
	if err := os.MkdirAll(filepath.Dir(entry), 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder (set HPP_CACHE to use another): %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(entry), "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	archive, err := Open(ctx, filepath.Join(work, "apt"), arch, Suite, Suite+"-security")
	if err != nil {
		return "", err
	}
	if err := archive.Unpack(ctx, tree, packages...); err != nil {
		return "", err
	}
	err = os.Rename(tree, entry)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		err = nil
	}
	return entry, err
}

func cacheDir() (string, error) {
	if dir := os.Getenv("HPP_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.Join(errors.New("set HPP_CACHE or HOME so that downloaded packages have a place"), err)
	}
	return filepath.Join(home, ".cache", "hostpath-provisioner"), nil
}

// links are the program interpreter and the libraries of a binary, as paths below root.
func links(root, file string) ([]string, error) {
	binary, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer binary.Close()
	var names []string
	if section := binary.Section(".interp"); section != nil {
		data, err := section.Data()
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimRight(string(data), "\x00"))
	}
	libraries, err := binary.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, library := range libraries {
		matches, err := filepath.Glob(filepath.Join(root, "lib", "*-linux-gnu", library))
		more, moreErr := filepath.Glob(filepath.Join(root, "usr", "lib", "*-linux-gnu", library))
		matches = append(matches, more...)
		if err := errors.Join(err, moreErr); err != nil || len(matches) == 0 {
			return nil, errors.Join(fmt.Errorf("%s is in none of the packages", library), err)
		}
		names = append(names, path.Join("/", strings.TrimPrefix(matches[0], root)))
	}
	return names, nil
}
