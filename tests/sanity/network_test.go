//go:build !vm

package sanity_test

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// network is what pools with scope shared lie on: FUSE, which does not know RENAME_NOREPLACE here, as NFS does not.
const network = "fuse"

// remote is a file or directory of it.
type remote struct{ *fs.LoopbackNode }

// WrapChild implements fs.NodeWrapChilder.
func (remote) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	if n, ok := child.(*fs.LoopbackNode); ok {
		return &remote{n}
	}
	return child
}

// Rename implements fs.NodeRenamer.
func (r remote) Rename(
	ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	if flags != 0 {
		return syscall.ENOSYS
	}
	return r.LoopbackNode.Rename(ctx, name, parent, newName, flags)
}

// mountNetwork serves a directory at a pool's path until the test ends.
func mountNetwork(t *testing.T, served, pool string) {
	t.Helper()
	if err := os.Mkdir(served, 0o700); err != nil {
		t.Fatal(err)
	}
	data := &fs.LoopbackRoot{Path: served}
	root := &remote{&fs.LoopbackNode{RootData: data}}
	data.RootNode = root
	server, err := fs.Mount(pool, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, Name: "network"},
	})
	if err != nil {
		t.Fatalf("mount a FUSE filesystem, which needs root and /dev/fuse: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Errorf("unmount the pool on %s: something holds it open: %v", network, err)
		}
	})
}
