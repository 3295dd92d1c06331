package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// A pool has a range of the filesystem's account numbers to itself, so that it can tell its own limits from those of other pools and of
// whoever else has some.
const (
	// RangeSize is how many volumes, with those in the trash, a pool can hold.
	RangeSize = 1 << 20
	// the last range ends below 2^32.
	firstRange, ranges = poolfs.FirstNumber / RangeSize, 1<<12 - firstRange - 1
)

// Enforces tells whether a backend holds volumes to their size.
func Enforces(b volume.Backend) bool { return b.Enforcement() != volume.None }

// ValidRange tells whether a number is the first of a range.
func ValidRange(first uint32) bool {
	return first%RangeSize == 0 && first/RangeSize >= firstRange && first/RangeSize < firstRange+ranges
}

// FreeRange finds a range of numbers, by its first, in which the filesystem has no account yet and that taken does not name.
func FreeRange(disk poolfs.FS, taken func(first uint32) bool) (uint32, error) {
	quotas, err := quotasOf(disk)
	if err != nil {
		return 0, err
	}
	const attempts = 100
	for range attempts {
		first := uint32(firstRange+rand.IntN(ranges)) * RangeSize //nolint:gosec // chance only has to avoid collisions, which are looked for
		if taken(first) {
			continue
		}
		found, err := quotas.Accounts(first, first+RangeSize-1)
		if err != nil {
			return 0, fmt.Errorf("look for unused quota numbers: %w", err)
		}
		if len(found) == 0 {
			return first, nil
		}
	}
	return 0, fmt.Errorf("the filesystem has limits in each of %d ranges of quota numbers that were tried", attempts)
}

// Usage is the use in bytes of every account from a first number on, by number.
func Usage(disk poolfs.FS, first uint32) (map[uint32]int64, error) {
	quotas, err := quotasOf(disk)
	if err != nil {
		return nil, err
	}
	accounts, err := quotas.Accounts(first, first+RangeSize-1)
	if err != nil {
		return nil, fmt.Errorf("read what volumes use: %w", err)
	}
	used := make(map[uint32]int64, len(accounts))
	for _, a := range accounts {
		used[a.Number] = a.BytesUsed
	}
	return used, nil
}

// Counted reads back, from every directory that is a volume's or was to be one, the number that it counts to. After an error some may
// be missing.
func Counted(disk poolfs.FS) (map[uint32]struct{}, error) {
	numbers := map[uint32]struct{}{}
	quotas, err := quotasOf(disk)
	if err != nil {
		return numbers, err
	}
	var problems []error
	for dir, below := range map[string]string{".": "", poolfs.StagingDir: "", poolfs.TrashDir: "data"} {
		entries, err := disk.ReadDir(dir)
		if err != nil {
			problems = append(problems, fmt.Errorf("list csi/%s: %w", dir, err))
		}
		for _, e := range entries {
			if !e.Dir || strings.HasPrefix(e.Name, ".") {
				continue
			}
			number, err := quotas.CountedBy(path.Join(dir, e.Name, below))
			switch {
			case err == nil:
				numbers[number] = struct{}{}
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
			default:
				problems = append(problems, fmt.Errorf("see what csi/%s is counted by: %w", path.Join(dir, e.Name), err))
			}
		}
	}
	delete(numbers, 0)
	return numbers, errors.Join(problems...)
}

// DropOthers removes the accounts of a range that nothing holds. It gives the numbers of those that stay: what data is still counted
// to is left for the next time.
func DropOthers(disk poolfs.FS, first uint32, held map[uint32]struct{}) (stay []uint32, err error) {
	quotas, err := quotasOf(disk)
	if err != nil {
		return nil, err
	}
	accounts, err := quotas.Accounts(first, first+RangeSize-1)
	if err != nil {
		return nil, fmt.Errorf("list the limits on the disk: %w", err)
	}
	var others []uint32
	for _, a := range accounts {
		if _, ok := held[a.Number]; !ok {
			others = append(others, a.Number)
		}
	}
	return DropAll(disk, others)
}

// DropAll is DropOthers for accounts that are known.
func DropAll(disk poolfs.FS, numbers []uint32) (stay []uint32, err error) {
	quotas, err := quotasOf(disk)
	if err != nil {
		return numbers, err
	}
	var problems []error
	for _, number := range numbers {
		err := quotas.RemoveAccount(number)
		if err != nil {
			stay = append(stay, number)
		}
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			problems = append(problems, fmt.Errorf("clear limit %d, which no volume has: %w", number, err))
		}
	}
	return stay, errors.Join(problems...)
}
