package btrfs

import (
	"encoding/binary"
	"errors"
	"math"
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
		{"btrfs_ioctl_vol_args", unsafe.Sizeof(volArgs{}), 4096},
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
		{"btrfs_ioctl_quota_rescan_args", unsafe.Sizeof(quotaRescanArgs{}), 64},
		{"btrfs_ioctl_ino_lookup_args", unsafe.Sizeof(inoLookupArgs{}), 4096},
		{"btrfs_ioctl_search_key", unsafe.Sizeof(searchKey{}), 104},
		{"btrfs_ioctl_search_key.min_type", unsafe.Offsetof(searchKey{}.minType), 56},
		{"btrfs_ioctl_search_key.nr_items", unsafe.Offsetof(searchKey{}.items), 64},
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

func TestNextKey(t *testing.T) {
	const most = math.MaxUint64
	for _, test := range []struct {
		from, want key
		ok         bool
	}{
		{key{1, 2, 3}, key{1, 2, 4}, true},
		{key{1, 2, most}, key{1, 3, 0}, true},
		{key{1, 255, most}, key{2, 0, 0}, true},
		{key{most, 255, most}, key{}, false},
	} {
		if got, ok := test.from.next(); got != test.want || ok != test.ok {
			t.Errorf("after %v: %v, %v; want %v, %v", test.from, got, ok, test.want, test.ok)
		}
	}
}

// item is one item of a search's answer.
func item(k key, data ...byte) []byte {
	b := make([]byte, 8, searchHeaderSize+len(data))
	b = binary.NativeEndian.AppendUint64(b, k.object)
	b = binary.NativeEndian.AppendUint64(b, k.offset)
	b = binary.NativeEndian.AppendUint32(b, k.kind)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func TestItems(t *testing.T) {
	first, second := key{1, 2, 3}, key{4, 5, 6}
	buf := append(item(first, 7, 8), item(second)...)
	var keys []key
	var data []byte
	last, err := items(buf, 2, func(k key, d []byte) { keys, data = append(keys, k), append(data, d...) })
	must(t, err)
	if last != second || len(keys) != 2 || keys[0] != first || keys[1] != second || string(data) != "\x07\x08" {
		t.Errorf("last %v, keys %v, data %v", last, keys, data)
	}
	for cut := range buf {
		if _, err := items(buf[:cut], 2, func(key, []byte) {}); !errors.Is(err, syscall.EIO) {
			t.Errorf("an answer cut at %d: %v, want EIO", cut, err)
		}
	}
}

func FuzzItems(f *testing.F) {
	f.Add(item(key{1, 2, 3}, 4, 5), uint32(1))
	f.Add(append(item(key{1, 2, 3}), item(key{1, 2, 4}, 9)...), uint32(2))
	f.Add([]byte{}, uint32(math.MaxUint32))
	f.Fuzz(func(t *testing.T, buf []byte, n uint32) {
		visited, held := uint32(0), 0
		_, err := items(buf, n, func(_ key, data []byte) {
			visited++
			held += searchHeaderSize + len(data)
			_, _ = field(data, 8)
		})
		if held > len(buf) || err == nil && visited != n {
			t.Errorf("%d items of %d bytes out of %d, %d asked for: %v", visited, held, len(buf), n, err)
		}
	})
}
