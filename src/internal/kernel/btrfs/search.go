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

// allItems are all items of a kind.
func allItems(tree, object uint64, kind uint32) items {
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
		last, err := read(args.buf[:], args.key.items, want.least, func(at key, data []byte) { visit(at.offset, data) })
		if err != nil {
			return failed(f, err)
		}
		if want.one || last.offset >= want.last {
			return nil
		}
		want.first = last.offset + 1
	}
}

func failed(f *os.File, err error) error { return fmt.Errorf("search trees of %s: %w", f.Name(), err) }

// key is an item's, by which trees are ordered: by object, then by kind, then by offset.
type key struct {
	object uint64
	kind   uint32
	offset uint64
}

// next is the key that follows.
func (k key) next() key {
	switch {
	case k.offset < math.MaxUint64:
		k.offset++
	case k.kind < math.MaxUint8:
		k.kind, k.offset = k.kind+1, 0
	default:
		k = key{object: k.object + 1}
	}
	return k
}

// read visits n items of a search's answer and returns the last one's key.
func read(buf []byte, n uint32, least int, visit func(at key, data []byte)) (at key, err error) {
	for range n {
		if len(buf) < searchHeaderSize {
			return at, fmt.Errorf("%w: the answer ends inside an item's header", unix.EIO)
		}
		at = key{
			object: binary.NativeEndian.Uint64(buf[8:]), offset: binary.NativeEndian.Uint64(buf[16:]),
			kind: binary.NativeEndian.Uint32(buf[24:]),
		}
		size := uint64(binary.NativeEndian.Uint32(buf[28:]))
		buf = buf[searchHeaderSize:]
		if size > uint64(len(buf)) || size < uint64(least) {
			return at, fmt.Errorf("%w: an item of %d bytes is too short, or longer than the answer", unix.EIO, size)
		}
		visit(at, buf[:size])
		buf = buf[size:]
	}
	return at, nil
}

// firstNested is one of the subvolumes directly in a subvolume, 0 where there is none.
func firstNested(f *os.File, id uint64) (child uint64, err error) {
	want := allItems(rootTree, id, typeRootRef)
	want.one = true
	err = search(f, want, func(offset uint64, _ []byte) { child = offset })
	return child, err
}
