package btrfs

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
)

// items names those of an object in a btrfs tree that are of one kind, from an offset to another, or just one of them.
// least is how many bytes each has; those of later formats are longer, never shorter.
type items struct {
	tree, object uint64
	kind         uint32
	first, last  uint64
	least        int
	one          bool
}

// all are all items of a kind.
func all(tree, object uint64, kind uint32) items {
	return items{tree: tree, object: object, kind: kind, last: math.MaxUint64}
}

// search gives the items to visit, whose data is valid only during the call. A tree that does not exist is ENOENT.
func search(f *os.File, want items, visit func(offset uint64, data []byte)) error {
	most := uint32(math.MaxUint32)
	if want.one = want.one || want.first == want.last; want.one {
		most = 1 // else the kernel looks at all that follows in the leaf: 13 µs instead of 1
	}
	for {
		args := searchArgs{key: searchKey{
			tree:      want.tree,
			minObject: want.object, maxObject: want.object,
			minOffset: want.first, maxOffset: want.last,
			maxTransid: math.MaxUint64,
			minType:    want.kind, maxType: want.kind,
			items: most,
		}}
		if err := do(f, "search trees", ioctl.RW, 17, &args); err != nil || args.key.items == 0 {
			return err
		}
		last, err := read(args.buf[:], args.key.items, want.least, visit)
		if err != nil {
			return fmt.Errorf("search trees of %s: %w", f.Name(), err)
		}
		if want.one || last >= want.last {
			return nil
		}
		want.first = last + 1
	}
}

// read visits n items of a search's answer and returns the last one's offset.
func read(buf []byte, n uint32, least int, visit func(offset uint64, data []byte)) (offset uint64, err error) {
	for range n {
		if len(buf) < searchHeaderSize {
			return 0, fmt.Errorf("%w: the answer ends inside an item's header", unix.EIO)
		}
		offset = binary.NativeEndian.Uint64(buf[16:])
		size := uint64(binary.NativeEndian.Uint32(buf[28:]))
		buf = buf[searchHeaderSize:]
		if size > uint64(len(buf)) || size < uint64(least) {
			return 0, fmt.Errorf("%w: an item of %d bytes is too short, or longer than the answer", unix.EIO, size)
		}
		visit(offset, buf[:size])
		buf = buf[size:]
	}
	return offset, nil
}

// firstNested is one of the subvolumes directly in a subvolume, 0 where there is none.
func firstNested(f *os.File, id uint64) (child uint64, err error) {
	want := all(rootTree, id, typeRootRef)
	want.one = true
	err = search(f, want, func(offset uint64, _ []byte) { child = offset })
	return child, err
}
