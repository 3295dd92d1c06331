package quota

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// TestInodes: what a volume may have that names no limit. 10 GiB take 300,000 files on each filesystem.
func TestInodes(t *testing.T) {
	const gi = 1 << 30
	usual := disk.Space{Size: 100 * gi, Inodes: 6_553_600}      // mke2fs -T default: one for each 16 KiB
	news := disk.Space{Size: 100 * gi, Inodes: 26_214_400}      // -T small: 4 KiB
	largefile := disk.Space{Size: 100 * gi, Inodes: 102_400}    // -T largefile: 1 MiB
	larger := disk.Space{Size: 15 << 60 / 2, Inodes: 1<<32 - 1} // as large as it gets
	for name, test := range map[string]struct {
		inodes func(int64, disk.Space) int64
		space  disk.Space
		bytes  int64
		want   int64
	}{
		"ext4":                       {ext4Inodes, usual, 10 * gi, 655_360},
		"ext4, one block":            {ext4Inodes, usual, 4096, 1024},
		"ext4 of small files":        {ext4Inodes, news, 10 * gi, 2_621_440},
		"ext4 of large files":        {ext4Inodes, largefile, 10 * gi, 655_360},
		"ext4, more than there is":   {ext4Inodes, usual, 1000 * gi, 65_536_000},
		"ext4 as large as it gets":   {ext4Inodes, larger, larger.Size, larger.Size >> 14},
		"ext4 that says nothing":     {ext4Inodes, disk.Space{}, 10 * gi, 655_360},
		"XFS":                        {xfsInodes, usual, 10 * gi, 2_621_440},
		"XFS, whatever it has":       {xfsInodes, news, 1 * gi, 262_144},
		"XFS, one block":             {xfsInodes, usual, 4096, 1024},
		"a filesystem without limit": {nil, usual, 10 * gi, 0},
	} {
		b := Backend{Name: Project, Enforcement: Cooperative, inodes: test.inodes}
		if got := b.Inodes(test.bytes, test.space); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
		b.Enforcement = None
		if got := b.Inodes(test.bytes, test.space); got != 0 {
			t.Errorf("%s, and nothing is enforced: %d", name, got)
		}
	}
}
