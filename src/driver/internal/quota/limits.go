package quota

import (
	"context"
	"fmt"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// limits are what a backend does for a pool: NewID and Enforce too.
type limits interface {
	Limits
	newID(claim func(ID) error) (ID, error)
	enforce(ctx context.Context, t Tree, step func(context.Context) error) error
}

// limiter sets and removes limits of IDs, of directories that Check knows.
type limiter interface {
	Check(name string, id ID) (State, error)
	limit(id ID, l Limit) error
	remove(id ID) error
}

// set is Limits.Set on a filesystem whose IDs end at greatest.
func set(on limiter, greatest ID, name string, id ID, limit Limit) error {
	if id == 0 && limit == (Limit{}) {
		return nil
	}
	if err := checkID(id, greatest); err != nil {
		return err
	}
	if limit == (Limit{}) {
		return on.remove(id)
	}
	is, err := on.Check(name, id)
	if err != nil {
		return err
	}
	if is.ID != id {
		return fmt.Errorf("%w: csi/%s counts to ID %d, not to %d", ErrNotCounted, name, is.ID, id)
	}
	return on.limit(id, limit)
}

// checkID refuses what cannot be a volume's ID on a filesystem.
func checkID(id, greatest ID) error {
	if id < firstID || id > greatest {
		return fmt.Errorf("%w: %d is no ID of a volume", ErrNotCounted, id)
	}
	return nil
}

// withDirectory runs do on an open directory.
func withDirectory(d disk.FS, name string, do func(dir *os.File) error) error {
	h, err := d.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // nothing was written through it
	if h.File == nil {
		return ErrUnsupported
	}
	return do(h.File)
}
