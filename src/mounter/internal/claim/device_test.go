package claim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// leastXFS is more than mkfs.xfs wants at least, 300 MB.
const leastXFS = 320 << 20

// disk makes a blank device of a size in bytes.
func disk(tb testing.TB, size int64, options ...string) (device, image string) {
	tb.Helper()
	image = filepath.Join(tb.TempDir(), "disk")
	mounttest.Image(tb, image, "", size)
	return mounttest.Device(tb, image, options...), image
}

func TestBlankDevice(t *testing.T) {
	device, _ := disk(t, leastXFS) // first, so that it is detached last
	n := newNode(t)
	c := n.claim(Source{Device: device})
	n.ensures(t, c, true)
	if kind, err := probeFilesystem(t.Context(), device); kind != "xfs" || err != nil {
		t.Errorf("the device has %q, %v", kind, err)
	}
	data := filepath.Join(n.host, "csi/data")
	must(t, os.WriteFile(data, []byte("kept"), 0o600))
	n.ensures(t, c, false)
	again := n.claim(Source{Device: device})
	n.ensures(t, again, false) // after a restart
	for range 2 {              // an admin, and then the node's reboot
		must(t, unix.Unmount(filepath.Join(n.host, "csi"), 0))
		n.ensures(t, again, true)
	}
	if text, err := os.ReadFile(data); string(text) != "kept" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	must(t, os.Remove(data))
	if released, err := again.Release(); err != nil || !released {
		t.Errorf("released %v, %v", released, err)
	}
}

// TestDeviceWithFilesystem keeps what is on it.
func TestDeviceWithFilesystem(t *testing.T) {
	for kind, size := range map[string]int64{"xfs": leastXFS, "ext4": 16 << 20, "btrfs": 128 << 20} {
		t.Run(kind, func(t *testing.T) {
			device, _ := disk(t, size)
			mounttest.Run(t, "mkfs."+kind, "-q", device)
			n := newNode(t)
			elsewhere := n.dir(t, "elsewhere")
			must(t, unix.Mount(device, elsewhere, kind, 0, ""))
			must(t, os.WriteFile(filepath.Join(elsewhere, "data"), []byte("kept"), 0o600))
			c := n.claim(Source{Device: device})
			n.ensures(t, c, true) // while it is mounted there
			must(t, unix.Unmount(elsewhere, 0))
			n.ensures(t, c, false)
			if text, err := os.ReadFile(filepath.Join(n.other, "csi/data")); string(text) != "kept" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			csi := filepath.Join(n.host, "csi")
			must(t, unix.Unmount(csi, 0))
			must(t, unix.Mount(device, csi, kind, 0, "")) // kubevirt's mounter
			n.ensures(t, n.claim(Source{Device: device}), false)
		})
	}
}

func TestReadOnlyDevice(t *testing.T) {
	writable, image := disk(t, 16<<20)
	mounttest.Run(t, "mkfs.ext4", "-q", writable)
	n := newNode(t)
	c := n.claim(Source{Device: mounttest.Device(t, image, "--read-only")})
	n.ensures(t, c, true)
	if is := mounted(t, filepath.Join(n.host, "csi")); !is.ReadOnly {
		t.Errorf("%+v", is)
	}
	n.ensures(t, c, false)

	blank, _ := disk(t, leastXFS, "--read-only")
	m := newNode(t)
	refuses(t, m.claim(Source{Device: blank}), nil, "mkfs.xfs "+blank)
}

// TestDeviceWithData is left as it was, to the byte.
func TestDeviceWithData(t *testing.T) {
	const size = 64 << 20
	at := func(offset int64, text string) func(*testing.T, string) {
		return func(t *testing.T, device string) {
			t.Helper()
			f, err := os.OpenFile(device, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte(text), offset)
			must(t, errors.Join(err, f.Sync(), f.Close()))
		}
	}
	for name, test := range map[string]struct {
		write func(*testing.T, string)
		says  string
	}{
		"first byte":      {at(0, "x"), "byte 0 is not zero"},
		"in the middle":   {at(size/2+77, "x"), fmt.Sprintf("byte %d is not zero", size/2+77)},
		"last byte":       {at(size-1, "x"), fmt.Sprintf("byte %d is not zero", size-1)},
		"physical volume": {at(512, "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00"), "is not zero"},
		// One entry of type 83, which begins at sector 2048.
		"partitions": {at(446, "\x00\x20\x21\x00\x83\x20\x21\x00\x00\x08\x00\x00\x00\x40\x00\x00"+
			strings.Repeat("\x00", 48)+"\x55\xaa"), "a signature of dos"},
		"swap": {
			func(t *testing.T, device string) { t.Helper(); mounttest.Run(t, "mkswap", device) }, "a signature of swap",
		},
		"ext3": {func(t *testing.T, device string) {
			t.Helper()
			mounttest.Run(t, "mkfs.ext4", "-q", "-t", "ext3", device)
		}, "ext3"},
		"two at once": {func(t *testing.T, device string) {
			t.Helper()
			other, _ := disk(t, leastXFS)
			mounttest.Run(t, "mkfs.xfs", "-q", other)
			f, err := os.Open(other)
			must(t, err)
			defer func() { _ = f.Close() }()
			superblock := make([]byte, 512)
			_, err = f.Read(superblock)
			must(t, err)
			mounttest.Run(t, "mkfs.ext4", "-q", device)
			at(0, string(superblock))(t, device)
		}, "several filesystems"},
	} {
		t.Run(name, func(t *testing.T) {
			device, image := disk(t, size)
			test.write(t, device)
			mounttest.Run(t, "sync", device)
			before, err := os.ReadFile(image)
			must(t, err)
			n := newNode(t)
			c := n.claim(Source{Device: device})
			for range 2 {
				refuses(t, c, ErrNotBlank, test.says, "mkfs.xfs -f "+device)
			}
			if is := count(t, filepath.Join(n.host, "csi")); is != 0 {
				t.Errorf("%d mounts", is)
			}
			after, err := os.ReadFile(image)
			must(t, err)
			if !bytes.Equal(before, after) {
				t.Error("the device was changed")
			}
		})
	}
}

// TestDataMayGo: after the one command that the refusal names, the claim is mounted.
func TestDataMayGo(t *testing.T) {
	device, _ := disk(t, leastXFS)
	mounttest.Run(t, "mkfs.ext4", "-q", "-t", "ext3", device)
	n := newNode(t)
	c := n.claim(Source{Device: device})
	refuses(t, c, ErrNotBlank, "; if its data may go, run in this pod: mkfs.xfs -f "+device)
	mounttest.Run(t, "mkfs.xfs", "-q", "-f", device)
	n.ensures(t, c, true)
}

func TestNoDevice(t *testing.T) {
	n := newNode(t)
	refuses(t, n.claim(Source{Device: filepath.Join(n.root, "missing")}), os.ErrNotExist)
	refuses(t, n.claim(Source{Device: "/dev/zero"}), nil, "/dev/zero is no block device")
	small, _ := disk(t, 16<<20)
	refuses(t, n.claim(Source{Device: small}), nil, "mkfs.xfs "+small) // which wants 300 MB, and says so
	held, _ := disk(t, leastXFS)
	f, err := os.OpenFile(held, os.O_RDWR|unix.O_EXCL, 0)
	must(t, err)
	c := n.claim(Source{Device: held})
	refuses(t, c, unix.EBUSY, "for this mounter alone")
	must(t, f.Close())
	n.ensures(t, c, true)
	must(t, unix.Unmount(filepath.Join(n.host, "csi"), 0))
}

// zeros is a device without an end, whose reader is told to stop.
type zeros struct {
	stop func()
	read int
}

func (z *zeros) ReadAt(p []byte, _ int64) (int, error) {
	if z.read++; z.read == 3 {
		z.stop()
	}
	return len(p), nil
}

func TestReadingEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	z := &zeros{stop: stop}
	d := device{path: "/dev/zero", log: slog.New(slog.DiscardHandler)}
	if at, err := d.search(ctx, z, 1<<60); !errors.Is(err, context.Canceled) || at != 2*chunk || z.read != 3 {
		t.Errorf("ended at %d after %d reads: %v", at, z.read, err)
	}
}
