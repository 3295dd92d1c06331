package btrfs

import (
	"encoding/binary"
	"math"
	"slices"
	"syscall"
	"testing"
	"unsafe"
)

// TestLayout compares with what the C compiler makes of the kernel's header (linux/btrfs.h of linux-libc-dev 6.1).
func TestLayout(t *testing.T) {
	for _, test := range []struct {
		name      string
		got, want uintptr
	}{
		{"btrfs_ioctl_vol_args_v2", unsafe.Sizeof(volArgsV2{}), 4096},
		{"btrfs_ioctl_vol_args_v2.flags", unsafe.Offsetof(volArgsV2{}.flags), 16},
		{"btrfs_ioctl_vol_args_v2.size", unsafe.Offsetof(volArgsV2{}.size), 24},
		{"btrfs_ioctl_vol_args_v2.qgroup_inherit", unsafe.Offsetof(volArgsV2{}.inherit), 32},
		{"btrfs_ioctl_vol_args_v2.name", unsafe.Offsetof(volArgsV2{}.name), 56},
		{"btrfs_qgroup_inherit and one qgroup", unsafe.Sizeof(qgroupInherit{}), 72 + 8},
		{"btrfs_qgroup_inherit.lim", unsafe.Offsetof(qgroupInherit{}.limit), 32},
		{"btrfs_qgroup_inherit.qgroups", unsafe.Offsetof(qgroupInherit{}.qgroup), 72},
		{"btrfs_ioctl_qgroup_limit_args", unsafe.Sizeof(qgroupLimitArgs{}), 48},
		{"btrfs_qgroup_limit.max_rfer", unsafe.Offsetof(qgroupLimit{}.maxReferenced), 8},
		{"btrfs_ioctl_qgroup_create_args", unsafe.Sizeof(qgroupCreateArgs{}), 16},
		{"btrfs_ioctl_qgroup_assign_args", unsafe.Sizeof(qgroupAssignArgs{}), 24},
		{"btrfs_ioctl_quota_ctl_args", unsafe.Sizeof(quotaCtlArgs{}), 16},
		{"btrfs_ioctl_ino_lookup_args", unsafe.Sizeof(inoLookupArgs{}), 4096},
		{"btrfs_ioctl_search_key", unsafe.Sizeof(searchKey{}), 104},
		{"btrfs_ioctl_search_key.min_type", unsafe.Offsetof(searchKey{}.minType), 56},
		{"btrfs_ioctl_search_key.nr_items", unsafe.Offsetof(searchKey{}.items), 64},
		{"btrfs_ioctl_search_args_v2", unsafe.Offsetof(searchArgsV2{}.buf), 112},
		{"btrfs_ioctl_search_args", unsafe.Sizeof(searchArgs{}), 4096},
	} {
		if test.got != test.want {
			t.Errorf("%s: %d, want %d", test.name, test.got, test.want)
		}
	}
}

func TestQgroupID(t *testing.T) {
	for _, test := range []struct {
		level uint16
		id    uint64
		want  QgroupID
		text  string
	}{
		{0, 5, 5, "0/5"},
		{1, 256, 1<<48 | 256, "1/256"},
		{1, math.MaxUint64, 2<<48 - 1, "1/281474976710655"},
		{math.MaxUint16, 0, math.MaxUint16 << 48, "65535/0"},
	} {
		q := NewQgroupID(test.level, test.id)
		if q != test.want || q.String() != test.text || NewQgroupID(q.Level(), q.ID()) != q {
			t.Errorf("%#x (%s), want %#x (%s)", uint64(q), q, uint64(test.want), test.text)
		}
	}
}

// item is one item of a search's answer.
func item(offset uint64, data ...byte) []byte {
	b := make([]byte, 16, searchHeaderSize+len(data))
	b = binary.NativeEndian.AppendUint64(b, offset)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func TestRead(t *testing.T) {
	buf := append(item(3, 7, 8), item(math.MaxUint64, 9)...)
	var offsets []uint64
	var data []byte
	last, err := read(buf, 2, 1, func(at key, item []byte) {
		offsets, data = append(offsets, at.offset), append(data, item...)
	})
	must(t, err)
	if last.offset != math.MaxUint64 || !slices.Equal(offsets, []uint64{3, last.offset}) ||
		string(data) != "\x07\x08\x09" {
		t.Errorf("last %v, offsets %v, data %v", last, offsets, data)
	}
	for cut := range buf {
		_, err := read(buf[:cut], 2, 1, func(key, []byte) {})
		wants(t, err, syscall.EIO)
	}
	_, err = read(buf, 2, 2, func(key, []byte) {}) // the second is too short
	wants(t, err, syscall.EIO)
}

func TestNextKey(t *testing.T) {
	for is, want := range map[key]key{
		{256, 246, 7}:                            {256, 246, 8},
		{256, 246, math.MaxUint64}:               {256, 247, 0},
		{256, math.MaxUint8, math.MaxUint64}:     {257, 0, 0},
		{256, math.MaxUint8, math.MaxUint64 - 1}: {256, math.MaxUint8, math.MaxUint64},
	} {
		if got := is.next(); got != want {
			t.Errorf("%+v is followed by %+v, want %+v", is, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(item(3, 4, 5), uint32(1), 2)
	f.Add(append(item(3), item(4, 9)...), uint32(2), 1)
	f.Add([]byte{}, uint32(math.MaxUint32), 0)
	f.Fuzz(func(t *testing.T, buf []byte, n uint32, least int) {
		visited, size := uint32(0), 0
		_, err := read(buf, n, max(least, 0), func(_ key, data []byte) {
			visited++
			size += searchHeaderSize + len(data)
			if len(data) < least {
				t.Errorf("an item of %d bytes, want %d", len(data), least)
			}
		})
		if size > len(buf) || err == nil && visited != n {
			t.Errorf("%d items of %d bytes out of %d, %d asked for: %v", visited, size, len(buf), n, err)
		}
	})
}
