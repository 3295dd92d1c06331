//go:build vm

package powercuttest

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// mark replaces what a volume has by so many new bytes in files, durably, and gives the sum of that.
func mark(ctx context.Context, d disk.FS, id string, bytes int64) (string, error) {
	const files = 8
	dir := path.Join(id, "data")
	if err := d.RemoveTree(ctx, dir, func(context.Context) error { return nil }); err != nil {
		return "", err
	}
	if err := d.Mkdir(dir, 0o751); err != nil {
		return "", err
	}
	content := make([]byte, bytes/files)
	for i := range files {
		_, _ = rand.Read(content) // never fails
		if err := d.WriteFile(path.Join(dir, strconv.Itoa(i)), content, 0o640); err != nil {
			return "", err
		}
	}
	if err := d.Link(path.Join(dir, "0"), path.Join(dir, "link")); err != nil {
		return "", err
	}
	if err := disk.SyncAll(d, dir, id); err != nil {
		return "", err
	}
	return sum(id)
}

// sum is one of all that a volume has: names, modes, times, links and content. "" is nothing.
func sum(id string) (string, error) {
	root := filepath.Join(poolPath, "csi", id)
	all := crc64.New(crc64.MakeTable(crc64.ECMA))
	empty := true
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		empty = false
		info, err := e.Info()
		if err != nil {
			return err
		}
		links := uint64(0)
		var content []byte
		if is, ok := info.Sys().(*syscall.Stat_t); ok && !e.IsDir() {
			links = uint64(is.Nlink)
			content, err = os.ReadFile(name)
		}
		_, _ = fmt.Fprintln(all, name[len(root):], info.Mode(), info.ModTime().UnixNano(), links, len(content))
		_, _ = all.Write(content) // never fails
		return err
	})
	if err != nil || empty {
		return "", err
	}
	return fmt.Sprintf("%016x", all.Sum64()), nil
}
