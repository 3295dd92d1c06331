package rootfs

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// firewallPatterns are the programs that kube-proxy calls. iptables loads its
// modules from the xtables folder by name, so no program links to them and
// all must be taken, with their own libraries.
func firewallPatterns() []string {
	return []string{
		"usr/sbin/iptables*", "usr/sbin/ip6tables*", "usr/sbin/xtables-*-multi",
		"usr/sbin/nft", "usr/sbin/conntrack", "usr/lib/*/xtables/*.so",
	}
}

// writeFirewall archives kube-proxy's tools out of tree.
func writeFirewall(tree, target string) error {
	c := collector{tree: tree, files: map[string]scratch.File{}}
	for _, pattern := range firewallPatterns() {
		matches, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return err
		}
		if len(matches) == 0 {
			return fmt.Errorf("nothing matches %s in the root filesystem: the list of Debian packages lacks one",
				pattern)
		}
		for _, match := range matches {
			relative, err := filepath.Rel(tree, match)
			if err != nil {
				return err
			}
			if err := c.add(relative); err != nil {
				return fmt.Errorf("collect %s for kube-proxy: %w", relative, err)
			}
		}
	}
	return c.write(target)
}

// collector collects files of a tree with everything they need to run there.
type collector struct {
	tree  string
	files map[string]scratch.File // by path relative to tree
}

// add takes the file at path, the symbolic links on the way to it, and the
// libraries it is linked to.
func (c *collector) add(path string) error {
	target, err := c.resolve(path, 0)
	if err != nil {
		return err
	}
	if _, known := c.files[target]; known {
		return nil
	}
	c.files[target] = scratch.File{Path: "/" + target, Source: filepath.Join(c.tree, target)}
	return c.addLibraries(target)
}

// resolve follows links the way a process would whose root is tree, and
// collects each link it meets.
func (c *collector) resolve(path string, depth int) (string, error) {
	if depth > 40 {
		return "", errors.New("too many symbolic links")
	}
	walked := ""
	parts := strings.Split(filepath.Clean(path), "/")
	for i, part := range parts {
		next := filepath.Join(walked, part)
		target, err := os.Readlink(filepath.Join(c.tree, next))
		if err != nil { // not a link, or missing: the caller's open tells which
			walked = next
			continue
		}
		c.files[next] = scratch.File{Path: "/" + next, Link: target}
		if !strings.HasPrefix(target, "/") {
			target = filepath.Join("/", walked, target)
		}
		rest := filepath.Join(append([]string{target}, parts[i+1:]...)...)
		return c.resolve(strings.TrimPrefix(rest, "/"), depth+1)
	}
	return walked, nil
}

func (c *collector) addLibraries(path string) error {
	f, err := elf.Open(filepath.Join(c.tree, path))
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return nil // a script, or too short for a program
	}
	if err != nil {
		return err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, library := range needed {
		found, err := c.find(library)
		if err != nil {
			return err
		}
		if err := c.add(found); err != nil {
			return err
		}
	}
	return c.addInterpreter(f)
}

// addInterpreter takes the dynamic loader that a program names.
func (c *collector) addInterpreter(f *elf.File) error {
	section := f.Section(".interp")
	if section == nil {
		return nil
	}
	raw, err := section.Data()
	if err != nil {
		return err
	}
	return c.add(strings.Trim(string(raw), "/\x00"))
}

func (c *collector) find(library string) (string, error) {
	for _, folder := range []string{"usr/lib", "usr/lib/*", "usr/lib64"} {
		matches, err := filepath.Glob(filepath.Join(c.tree, folder, library))
		if err != nil {
			return "", err
		}
		if len(matches) > 0 {
			return filepath.Rel(c.tree, matches[0])
		}
	}
	return "", fmt.Errorf("library %s: %w", library, fs.ErrNotExist)
}

func (c *collector) write(target string) error {
	f, err := os.Create(target)
	if err != nil {
		return err
	}
	files := make([]scratch.File, 0, len(c.files)+1)
	for _, file := range c.files {
		files = append(files, file)
	}
	// iptables takes its lock in /run.
	files = append(files, scratch.File{Path: "/run", Dir: true})
	return errors.Join(scratch.WriteTar(f, files...), f.Close())
}
