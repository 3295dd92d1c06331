// Package cache is the folder outside the repository where everything lives
// that took long to make. An entry is complete or absent, never half made,
// and two processes never make the same one at a time.
package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Variable overrides where the cache is.
const Variable = "HPP_CACHE"

// Dir is the cache's root folder.
type Dir string

// Open returns the cache: $HPP_CACHE, or hostpath-provisioner in the user's
// own cache folder. It makes the folder when needed.
func Open() (Dir, error) {
	path := os.Getenv(Variable)
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find a folder for the cache (set %s to name one): %w", Variable, err)
		}
		path = filepath.Join(home, ".cache", "hostpath-provisioner")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder (set %s to use another): %w", Variable, err)
	}
	return Dir(path), nil
}

// Path joins elem to the cache's root.
func (d Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Has reports whether the entry is there.
func (d Dir) Has(entry string) bool {
	_, err := os.Stat(d.Path(entry))
	return err == nil
}

// Once returns the folder of the entry. If it is not there, fill makes its
// content in an empty folder next to it, which is renamed when fill succeeds.
// What a crashed process left behind is removed first.
func (d Dir) Once(entry string, fill func(dir string) error) (string, error) {
	target := d.Path(entry)
	if d.Has(entry) {
		return target, nil
	}
	unlock, err := d.lock(entry)
	if err != nil {
		return "", err
	}
	defer unlock()
	if d.Has(entry) {
		return target, nil
	}
	temporary := target + ".partial"
	if err := remake(temporary); err != nil {
		return "", err
	}
	if err := fill(temporary); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, target); err != nil {
		return "", fmt.Errorf("complete cache entry %s: %w", entry, err)
	}
	return target, nil
}

func remake(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	return os.MkdirAll(dir, 0o755)
}

// lock holds an entry for this process until the function it returns is
// called. The kernel drops it when the process ends in any way.
func (d Dir) lock(entry string) (func(), error) {
	dir := d.Path("locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for locks: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, strings.ReplaceAll(entry, "/", "_")), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of cache entry %s: %w", entry, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the lock of cache entry %s: %w", entry, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing drops the lock; nothing was written
}
