package btrfs

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// key names an item of a btrfs tree; keys are ordered by object, kind, offset.
type key struct {
	object uint64
	kind   uint32 // 8 bits on disk
	offset uint64
}

// next is the smallest key that is greater; ok is false where there is none.
func (k key) next() (next key, ok bool) {
	const maxKind = math.MaxUint8
	switch {
	case k.offset < math.MaxUint64:
		return key{k.object, k.kind, k.offset + 1}, true
	case k.kind < maxKind:
		return key{k.object, k.kind + 1, 0}, true
	case k.object < math.MaxUint64:
		return key{k.object + 1, 0, 0}, true
	default:
		return key{}, false
	}
}

// search gives each item of a tree from first to last to visit, whose data is valid only during the call. A tree that
// does not exist is ENOENT.
func search(f *os.File, tree uint64, first, last key, visit func(k key, data []byte)) error {
	most := uint32(math.MaxUint32)
	if first == last {
		most = 1 // else the kernel looks at all that follows in the leaf: 13 µs instead of 1
	}
	for more := true; more; {
		args := searchArgs{key: searchKey{
			tree:      tree,
			minObject: first.object, maxObject: last.object,
			minOffset: first.offset, maxOffset: last.offset,
			maxTransid: math.MaxUint64,
			minType:    first.kind, maxType: last.kind,
			items: most,
		}}
		if err := treeSearch(f, &args); err != nil {
			return err
		}
		if args.key.items == 0 {
			return nil
		}
		at, err := items(args.buf[:], args.key.items, visit)
		if err != nil {
			return fmt.Errorf("search trees of %s: %w", f.Name(), err)
		}
		if at == last {
			return nil
		}
		first, more = at.next()
	}
	return nil
}

// items reads n items of a search's answer and tells the last one's key.
func items(buf []byte, n uint32, visit func(k key, data []byte)) (key, error) {
	var k key
	for range n {
		if len(buf) < searchHeaderSize {
			return key{}, fmt.Errorf("%w: the answer ends inside an item's header", unix.EIO)
		}
		k = key{
			object: binary.NativeEndian.Uint64(buf[8:]),
			offset: binary.NativeEndian.Uint64(buf[16:]),
			kind:   binary.NativeEndian.Uint32(buf[24:]),
		}
		size := uint64(binary.NativeEndian.Uint32(buf[28:]))
		buf = buf[searchHeaderSize:]
		if size > uint64(len(buf)) {
			return key{}, fmt.Errorf("%w: the answer ends inside an item", unix.EIO)
		}
		visit(k, buf[:size])
		buf = buf[size:]
	}
	return k, nil
}

// field reads a little-endian number at an offset of an item; items of later formats are longer, never shorter.
func field(data []byte, offset int) (uint64, error) {
	if len(data) < offset+8 {
		return 0, fmt.Errorf("%w: an item of %d bytes is too short", unix.EIO, len(data))
	}
	return binary.LittleEndian.Uint64(data[offset:]), nil
}
