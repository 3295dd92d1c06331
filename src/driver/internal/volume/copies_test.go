package volume_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// sized makes a volume of so many mebibytes.
func sized(t testing.TB, n *node, id string, mebibytes int64, from *store.Source) error {
	t.Helper()
	s := spec(id)
	s.Bytes, s.Source = mebibytes*mebibyte, from
	_, err := n.createWhole(t.Context(), s)
	return err
}

func snapshot(t testing.TB, n *node, id, of string) error {
	t.Helper()
	return n.cutWhole(t.Context(), volume.SnapshotSpec{ID: id, Volume: of})
}

// createWhole makes a volume, and asks again while its data is copied.
func (n *node) createWhole(ctx context.Context, s volume.Spec) (v volume.Volume, err error) {
	for {
		if v, err = n.Create(ctx, s); !errors.Is(err, volume.ErrFilling) || ctx.Err() != nil {
			return v, err
		}
	}
}

// cutWhole makes a snapshot, and asks again while its data is copied or made durable.
func (n *node) cutWhole(ctx context.Context, s volume.SnapshotSpec) error {
	for {
		r, err := n.Snapshot(ctx, s)
		busy := errors.Is(err, volume.ErrBusy) || err == nil && r.Filling()
		if !busy || ctx.Err() != nil {
			return err
		}
	}
}

// overwrite writes so many mebibytes of a letter into a volume's file, from its beginning.
func (n *node) overwrite(id string, letter byte, mebibytes int) error {
	f, err := os.OpenFile(n.path(id, "data"), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for range mebibytes {
		if _, err := f.Write(bytes.Repeat([]byte{letter}, mebibyte)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// has wants a file of one letter in a volume or snapshot.
func (n *node) has(t reporter, id string, letter byte, mebibytes int) {
	t.Helper()
	data, err := os.ReadFile(n.path(id, "data"))
	if err != nil || len(data) != mebibytes*mebibyte || bytes.Count(data, []byte{letter}) != len(data) {
		t.Errorf("%s has %d bytes, %d of them %c: %v", id, len(data), bytes.Count(data, []byte{letter}), letter, err)
	}
}
